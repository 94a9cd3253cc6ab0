"""How long the command line takes to start."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.load.bench import Bench, benchmark
from tests.load.figures import Figure

RUNS = 9


@benchmark
def cli_start(bench: Bench) -> Iterator[Figure]:
    """Floor: an empty Python process."""
    empty = _seconds(["-c", "pass"])
    for name, arguments in (("help", ["--help"]), ("board_help", ["board", "--help"]), ("shim_help", ["shim", "-h"])):
        yield Figure(f"cli_{name}", _seconds(["-m", "agensh", *arguments]) * 1000, "ms", empty * 1000)


def _seconds(arguments: list[str]) -> float:
    taken = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
