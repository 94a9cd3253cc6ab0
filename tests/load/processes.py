"""The processes that are measured: started on free ports, with their processor time and memory, and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.load.generator import Plan, Seen

START_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers on the loopback interface."""

    port: int
    pid: int

    def cpu(self) -> float:
        """Return the processor seconds it has taken."""
        return process_cpu(self.pid)


def process_cpu(pid: int) -> float:
    """Return the user and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def started(command: list[str], mark: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Start `python <command>`, wait for the line on stderr that starts with `mark` and ends with its port."""
    # A file, not a pipe: nobody reads what a server logs while it is measured.
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            stderr=log,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield Server(_port(process, log, mark), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], log: IO[str], mark: str) -> int:
    deadline = time.monotonic() + START_SECONDS
    while True:
        ended = process.poll() is not None
        log.seek(0)
        text = log.read()
        for line in text.splitlines(keepends=True):
            if line.startswith(mark) and line.endswith("\n"):
                return int(line.rstrip().rpartition(":")[2])
        if ended or time.monotonic() > deadline:
            raise RuntimeError(f"a server did not start: {text[-2000:]}")
        time.sleep(0.02)


def load(plan: Plan) -> Seen:
    """Carry out a plan in a generator process (blocking)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.load.generator"],
        input=plan.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr[-2000:]}")
    return Seen.model_validate_json(done.stdout)
