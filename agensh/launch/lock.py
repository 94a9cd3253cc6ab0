"""Kernel locks that say who is at work on a run: they end with their process, so nothing stale is ever left."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agensh.errors import AgenshError
from agensh.filelock import try_lock
from agensh.rundir import RunDir

_LOOK = 0.01  # seconds between two tries to take a lock that somebody only looks at


class RunBusy(AgenshError):
    """Another process is at work on this run already."""


def lock_file(run: RunDir) -> Path:
    """The file whose kernel lock says that a launcher runs this run; it holds that launcher's process id."""
    return run.path / "launcher.lock"


@contextmanager
def hold_lock(run: RunDir) -> Iterator[None]:
    """Hold the run's launcher lock; RunBusy names the process that holds it."""

    def busy(holder: str) -> str:
        return f"{run.path} is running already (process {holder}); `agensh status` shows it, `agensh stop` ends it."

    with _hold(lock_file(run), busy):
        yield


@contextmanager
def hold_command_lock(run: RunDir) -> Iterator[None]:
    """Hold the lock of the one command that may change the containers of a run; RunBusy names who holds it."""

    def busy(holder: str) -> str:
        return (
            f"another command (process {holder}) is at work on {run.run_id}; wait for its end, or interrupt it "
            f"(Ctrl-C, or kill {holder}) and call this one again."
        )

    with _hold(run.path / "command.lock", busy):
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for and hold the lock of a folder, which is made when it is missing; without one where it cannot be made."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield  # whoever makes something in it says why that cannot be
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _hold(path: Path, busy: Callable[[str], str]) -> Iterator[None]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise AgenshError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        while not try_lock(handle):
            if try_lock(handle, fcntl.LOCK_SH):
                # Nobody holds it: somebody was only looking, who has a share of it for a moment.
                fcntl.flock(handle, fcntl.LOCK_UN)
                time.sleep(_LOOK)
                continue
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
            raise RunBusy(busy(holder))
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            # Whoever looks when the next has the lock, and has not written yet, must not take this process for it.
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def running_launcher(run: RunDir) -> int | None:
    """Return the process id of the launcher that runs this run, or None when nobody does."""
    try:
        handle = os.open(lock_file(run), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        # A share: two that look at once are no launcher to each other.
        if try_lock(handle, fcntl.LOCK_SH):
            return None
        text = lock_file(run).read_text(encoding="utf-8").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(handle)
