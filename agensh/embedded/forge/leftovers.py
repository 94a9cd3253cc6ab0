"""Locks of git whose holder was killed: found, and taken away while the forge goes on.

git takes its locks away however it ends, save by SIGKILL: out of memory, beyond its time, by hand. What is left then
stops every later change of that ref, of all packed refs, or all packing. A lock counts as left behind when it stood
unchanged for a while and everybody who was at work in the repository has ended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agensh.clock import Clock

log = logging.getLogger(__name__)

STANDS = 1.0  # seconds; a git holds a lock for some milliseconds
AT_WORK = 60.0  # seconds in which whoever is at work may end; nobody holds a lock that long
LOCKS = (
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "packed-refs.new",
    "objects/maintenance.lock",
    "objects/pack/multi-pack-index.lock",
)

Mark = tuple[int, int]


class Leftovers:
    """Who is at work in the repositories of one forge, and which locks nobody holds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_work: dict[Path, set[asyncio.Event]] = {}
        self._suspects: asyncio.Queue[_Look] = asyncio.Queue()

    @contextmanager
    def working(self, repo: Path) -> Iterator[None]:
        """Whoever may take a lock does so within this."""
        over = asyncio.Event()
        others = self._at_work.setdefault(repo, set())
        others.add(over)
        try:
            yield
        finally:
            over.set()
            others.discard(over)
            if not others and self._at_work.get(repo) is others:
                del self._at_work[repo]

    def suspect(self, repo: Path, refs: Iterable[str] | None = None) -> None:
        """Have the locks of a repository looked at; given `refs`, only if a change of these meets one now."""
        if refs is None or any(_mark(repo / name) for name in (*LOCKS, *(f"{ref}.lock" for ref in refs))):
            self._suspects.put_nowait(self._look(repo))

    async def run(self) -> None:
        """Free what is suspected, until cancelled."""
        async with asyncio.TaskGroup() as looks:
            while True:
                looks.create_task(self._free(await self._suspects.get()))

    async def free(self, repo: Path) -> None:
        """Take away the locks that nobody holds; returns at once where there is no lock."""
        await self._free(self._look(repo))

    def _look(self, repo: Path) -> _Look:
        # Those who come later may wait for what is found here, and have not made it.
        return _Look(repo, locks(repo), list(self._at_work.get(repo, ())))

    async def _free(self, look: _Look) -> None:
        if not look.found:
            return
        await self._clock.sleep(STANDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(AT_WORK):
                for over in look.at_work:
                    await over.wait()
        # No await from here on: of two that look, the second must not take what was made after the first.
        for lock, mark in locks(look.repo).items():
            if look.found.get(lock) == mark:
                lock.unlink(missing_ok=True)
                log.warning("a lock that nobody held was removed", extra={"lock": str(lock)})


@dataclass(frozen=True, slots=True)
class _Look:
    """The locks that stood in a repository at a moment, and who was at work there."""

    repo: Path
    found: dict[Path, Mark]
    at_work: list[asyncio.Event]


def locks(repo: Path) -> dict[Path, Mark]:
    """Return the locks in a repository, with what tells one from a later one of the same name."""
    names = [repo / name for name in LOCKS]
    for folder, _, files in os.walk(repo / "refs"):
        names += [Path(folder, name) for name in files if name.endswith(".lock")]
    return {name: mark for name in names if (mark := _mark(name)) is not None}


def _mark(lock: Path) -> Mark | None:
    try:
        about = lock.stat()
    except (OSError, ValueError):  # a client may name a ref that the system does not take for a path
        return None
    return about.st_ino, about.st_ctime_ns  # the number alone is given to the next file at once
