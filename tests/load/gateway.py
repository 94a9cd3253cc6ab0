"""The gateway: what it adds to a first byte, and how much passes, beside a direct connection to the same model."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.load.bench import Bench, benchmark
from tests.load.figures import Figure, at_least, at_most
from tests.load.processes import Server, started

STREAMS = 64
WARMUP = 2.0  # seconds
ADMIN = "bench-admin-token"
PACES = {"paced": (100, 10.0), "flat": (2000, 0.0)}
"""Events of a stream, and milliseconds between two: a fast model's pace, and as much as the connection takes."""
SPEC = """\
[team]
name = "bench"
[task]
kind = "repo"
goal = "goal.md"
acceptance = "true"
[gateway]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
concurrency = 200
"""


@benchmark
def gateway(bench: Bench) -> Iterator[Figure]:
    """64 parallel streams through the gateway; floor: the same from the model itself, in turn."""
    for pace, (events, pause) in PACES.items():
        with ExitStack() as stack:
            command = ["-m", "tests.load.model_app", str(events), str(pause)]
            model = stack.enter_context(started(command, "model:"))
            served, key = _gateway(stack, bench.folder / f"gateway-{pace}", model)
            direct: list[dict[str, Any]] = []
            through: list[dict[str, Any]] = []
            for _ in range(bench.rounds):
                direct.append(_read(model, key, bench.seconds))
                through.append(_read(served, key, bench.seconds))
        bad = [one for one in (*direct, *through) if one["failures"] or not one["bytes_per_second"]]
        if bad:
            raise RuntimeError(f"gateway: not every stream was answered well: {bad}")
        floor, value = _median(direct, "bytes_per_second") / 1e6, _median(through, "bytes_per_second") / 1e6
        # Flat out, three processes share the processors that two share without the gateway; no model is as fast.
        wanted = (at_least(0.8, "ratio"),) if pace == "paced" else ()
        yield Figure(f"gateway_{pace}_throughput", value, "MB/s", floor, wanted)
        if pace == "paced":
            added = (_median(through, "first_p50") - _median(direct, "first_p50")) * 1000
            yield Figure("gateway_first_byte_added_p50", added, "ms", None, (at_most(5.0),))
            yield Figure(
                "gateway_first_byte_p99",
                _median(through, "first_p99") * 1000,
                "ms",
                _median(direct, "first_p99") * 1000,
            )


def _gateway(stack: ExitStack, folder: Path, model: Server) -> tuple[Server, str]:
    folder.mkdir()
    (folder / "goal.md").write_text("goal")
    spec = folder / "team.toml"
    spec.write_text(SPEC.format(port=model.port))
    command = ["-m", "agensh", "gateway", "serve", str(spec), "--port", "0", "--data", str(folder)]
    served = stack.enter_context(started(command, "gateway: http", {"AGENSH_GATEWAY_ADMIN_TOKEN": ADMIN}))
    made = httpx.post(
        f"http://127.0.0.1:{served.port}/keys",
        json={"worker": "bench-worker1"},
        headers={"Authorization": f"Bearer {ADMIN}"},
        trust_env=False,
        timeout=30,
    )
    return served, str(made.raise_for_status().json()["key"])


def _read(server: Server, key: str, seconds: float) -> dict[str, Any]:
    arguments = [str(server.port), key, str(STREAMS), str(seconds), str(WARMUP)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.load.streams", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    if done.returncode:
        raise RuntimeError(f"the readers failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _median(seen: Sequence[dict[str, Any]], name: str) -> float:
    return float(statistics.median(one[name] for one in seen))
