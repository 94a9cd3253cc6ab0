"""Calls of other programs, which end with the command that makes them.

An interrupt ends the program with all that it has started, in order if it can: what went on in the background would
meet the next command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


def call(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float, out: IO[str] | None = None
) -> tuple[int, str]:
    """Run a program; return its exit code and output, errors included, which go to `out` instead when that is given.

    FileNotFoundError when there is no such program, subprocess.TimeoutExpired when it does not end.
    """
    process = None
    try:
        with _interrupts_held_back():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if out is None else out,
                stderr=subprocess.STDOUT if out is None else None,
                text=True,
                errors="replace",
                env=env,
                process_group=0,  # Ctrl-C reaches us alone, and we end it
            )
        said, _ = process.communicate(timeout=timeout)
    except BaseException:
        if process is not None:
            _end(process)
        raise
    return process.returncode, said or ""


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: between its start and our knowing of it, a program would go on without us."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    came = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[str]) -> None:
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
