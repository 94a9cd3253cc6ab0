"""`python -m tests.load`: run the benchmarks, print a line a figure, compare with the last run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from _pytest.outcomes import Skipped

from tests.load import board, gateway, history, node, start  # noqa: F401 - each registers its benchmarks
from tests.load.bench import BENCHMARKS, Bench
from tests.load.figures import HEADING, Figure, comparison, read_last, write

RESULT = Path("build/bench.json")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 when a bound was missed or a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="run this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds of each load [3]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the median counts [3]")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of a long history [1000000]")
    options = parser.parse_args(arguments)
    last = read_last(RESULT)
    figures: list[Figure] = []
    failed = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agensh-bench-")))
        bench = Bench(stack, folder, options.seconds, options.rounds, options.entries)
        loads = " ".join(f"{load:.2f}" for load in os.getloadavg())
        _say(f"machine: {os.cpu_count()} processors, load {loads} (1, 5, 15 minutes); generators and servers share it")
        try:
            ((flush, version),) = bench.mariadb.run("SELECT @@innodb_flush_log_at_trx_commit, VERSION()")
        except Skipped as missing:
            sys.stderr.write(f"bench: {missing}\n")
            return 2
        _say(f"database: {version}, innodb_flush_log_at_trx_commit={flush}")
        _say(HEADING)
        for name in options.only or BENCHMARKS:
            try:
                for figure in BENCHMARKS[name](bench):
                    figures.append(figure)
                    _say(figure.line())
            except RuntimeError as error:
                failed += 1
                sys.stderr.write(f"bench: {name} failed: {error}\n")
        _say(f"machine: load {' '.join(f'{load:.2f}' for load in os.getloadavg())} at the end")
    if lines := comparison(last, figures):
        _say("\nagainst the last run:")
        for line in lines:
            _say(line)
    write(RESULT, figures, last)
    missed = [f"{figure.name}: {wanted}" for figure in figures for wanted in figure.missed]
    for line in missed:
        sys.stderr.write(f"bench: missed {line}\n")
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
