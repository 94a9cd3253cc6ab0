"""A disk that a test fills: a small file system of its own where mounting is allowed, else a limit of file sizes."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

SIZE = 16  # MiB
LIMIT = 96 * 1024  # bytes a file may have when the disk is said to be full


class Disk(Protocol):
    """Where a service keeps its data."""

    folder: Path

    def fill(self, pid: int) -> None:
        """Leave no room for process `pid`."""
        ...

    def free(self, pid: int) -> None:
        """Make room again."""
        ...


class MountedDisk:
    """A tmpfs, filled by a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, pid: int) -> None:
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def free(self, pid: int) -> None:
        self._ballast.unlink()


class LimitedDisk:
    """Any folder; a full disk is a limit of the size of the files that the process writes, as a quota is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def fill(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT, self._hard))

    def free(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._hard, self._hard))


def _mount(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(folder)]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    return False


@contextmanager
def small_disk(folder: Path, *, mounted: bool = True) -> Iterator[Disk]:
    """Yield a disk at `folder`; with `mounted` a file system of its own, if that is allowed here."""
    folder.mkdir()
    if not (mounted and _mount(folder)):
        yield LimitedDisk(folder)
        return
    try:
        yield MountedDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True, timeout=20)
