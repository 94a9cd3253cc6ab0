"""One process at a time works on the record of a run, and what a killed one has left locked is free again.

The launcher, `agensh report` and `agensh export`, and the node host's container may all come to it at once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agensh.filelock import locked


@asynccontextmanager
async def alone_at(folder: Path) -> AsyncIterator[None]:
    """Wait for and hold the kernel's lock of a folder; it ends with its process, in a container too."""
    async with locked(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
        yield


def remove_stale_locks(repository: Path) -> None:
    """Remove the lock files of git in a bare repository that nobody works in (blocking).

    Git keeps a killed process's locks, and then refuses the refs they are of for ever.
    """
    for path in (*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")):
        path.unlink(missing_ok=True)
