"""The kernel lock that says who runs a run: it ends with its process, so nothing stale is ever left."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agensh.errors import AgenshError
from agensh.rundir import RunDir


class RunBusy(AgenshError):
    """Another process runs this run already."""


def lock_file(run: RunDir) -> Path:
    """The file whose kernel lock says that a launcher runs this run; it holds that launcher's process id."""
    return run.path / "launcher.lock"


@contextmanager
def hold_lock(run: RunDir) -> Iterator[None]:
    """Hold the run's launcher lock; RunBusy names the process that holds it."""
    path = lock_file(run)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
            raise RunBusy(
                f"{run.path} is running already (process {holder}); `agensh status` shows it, `agensh stop` ends it."
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def running_launcher(run: RunDir) -> int | None:
    """Return the process id of the launcher that runs this run, or None when nobody does."""
    try:
        handle = os.open(lock_file(run), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = lock_file(run).read_text(encoding="utf-8").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(handle)
    return None
