"""The kernel's lock of an open file or folder: it ends with the process that holds it, however that ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LOOK = 0.1  # seconds between two looks at a lock that another process has


def try_lock(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take a lock if it is free, for oneself or as a share (`LOCK_SH`); say whether it was taken."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@asynccontextmanager
async def locked(handle: int) -> AsyncIterator[None]:
    """Wait for the lock and hold it; the handle is closed at the end."""
    try:
        # To wait in a thread would take one of a few from who has the lock, and could not be cancelled.
        while not try_lock(handle):  # noqa: ASYNC110 (another process has it)
            await asyncio.sleep(_LOOK)
        yield
    finally:
        os.close(handle)
