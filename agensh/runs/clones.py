"""What is in a worker's clone, read without trusting it.

A worker can write everything in its clone, the configuration too, and git obeys the configuration of the repository it
works in: it can name programs to run (`remote.*.uploadpack` for one, when an object is missing). Who reads a clone here
may be root. So no git runs in it: its branches are read as plain files, and a repository of ours borrows its objects.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

MOST_CLONES = 100  # of one worker
MOST_REFS = 20_000  # of one clone
PACKED_BYTES = 16 * 2**20  # of the file of packed refs
_LOOSE_BYTES = 128
_HEADS, _REMOTES = "refs/heads/", "refs/remotes/"
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Clone:
    """Where the branches of a clone stand."""

    objects: Path
    heads: frozenset[str]
    """Commits of its own branches."""
    remotes: frozenset[str]
    """Commits of the branches it knows of its remotes."""

    def environment(self) -> dict[str, str]:
        """Return what lets a git command in a repository of ours see the clone's objects."""
        path = str(self.objects).replace("\\", "\\\\").replace('"', '\\"')
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{path}"'}


def clones_in(folder: Path) -> list[Clone]:
    """Return the clones that stand side by side in a folder of a worker (blocking); links are not followed."""
    if not _is_folder(folder):
        return []
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, 100 * MOST_CLONES))
    found = (folder / name / ".git" for name in names if _is_folder(folder / name))
    whole = (git for git in found if _is_folder(git) and _is_folder(git / "objects"))
    return [_read(git) for git in islice(whole, MOST_CLONES)]


def _read(git: Path) -> Clone:
    refs = dict(islice(_packed(git / "packed-refs"), MOST_REFS))
    refs.update(islice(_loose(git), MOST_REFS))  # what stands alone is newer than what was packed
    heads = frozenset(sha for name, sha in refs.items() if name.startswith(_HEADS))
    remotes = frozenset(sha for name, sha in refs.items() if name.startswith(_REMOTES))
    return Clone(git / "objects", heads, remotes)


def _packed(file: Path) -> Iterator[tuple[str, str]]:
    for line in _text(file, PACKED_BYTES).split("\n"):
        sha, _, name = line.partition(" ")
        if _SHA.fullmatch(sha):
            yield name, sha


def _loose(git: Path) -> Iterator[tuple[str, str]]:
    for kind in (_HEADS, _REMOTES):
        for folder, _, names in os.walk(git / kind):
            for name in names:
                file = Path(folder, name)
                sha = _text(file, _LOOSE_BYTES).strip()
                if _SHA.fullmatch(sha):  # else it names another ref, or is no ref
                    yield str(file.relative_to(git)), sha


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _text(file: Path, most: int) -> str:
    """Return the beginning of a plain file; nothing for what is none, be it a pipe that would never end."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return stream.read(most).decode("utf-8", "replace")
