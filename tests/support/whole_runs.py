"""Whole runs as a user starts them: by the command line, in a folder of runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agensh.rundir import RunDir, find_run

AGENSH = [sys.executable, "-m", "agensh"]


@contextlib.contextmanager
def started(*arguments: str, runs: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*AGENSH, *arguments, "--runs", str(runs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()


def report(runs: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*AGENSH, "report", "--json", "--runs", str(runs)], capture_output=True, text=True, check=True, timeout=60
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


def newest(runs: Path) -> RunDir | None:
    return find_run(runs) if list(runs.glob("*/run.json")) else None


def processes_of(run: RunDir) -> list[str]:
    """Return the command lines of all processes that mention the run folder, or live in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((entry / "cwd").readlink())
            if str(run.path) in command or where.startswith(str(run.path)):
                found.append(command)
    return found


def node_pid(run: RunDir) -> int | None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if b"agensh.launch.service" in command and b"node" in command and str(run.path).encode() in command:
                    return int(entry.name)
    return None


def status(runs: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*AGENSH, "status", "--json", "--runs", str(runs)], capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout) if done.returncode == 0 else {}
