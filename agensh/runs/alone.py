"""One process at a time works on the record of a run, and what a killed one has left locked is free again.

The launcher, `agensh report` and `agensh export`, and the node host's container may all come to it at once.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_LOOK = 0.1  # seconds between two looks at a lock that another process has


@asynccontextmanager
async def alone_at(folder: Path) -> AsyncIterator[None]:
    """Wait for and hold the kernel's lock of a folder; it ends with its process, in a container too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # To wait in a thread could not be cancelled.
        while not _locked(handle):  # noqa: ASYNC110 (another process has it)
            await asyncio.sleep(_LOOK)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_stale_locks(repository: Path) -> None:
    """Remove the lock files of git in a bare repository that nobody works in (blocking).

    Git keeps a killed process's locks, and then refuses the refs they are of for ever.
    """
    for path in (*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")):
        path.unlink(missing_ok=True)
