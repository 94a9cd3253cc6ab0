"""Fan-out: the recent entries of a board in memory, and waiting for more.

A reader keeps only a seq. Whatever it has not seen it takes from the ring, or from the database when the ring no longer
reaches back that far, so a reader can be late but never skips an entry. The ring is filled after the commit only.
Releases of claims are counted by themselves: a reader is told those that happen while it reads, of entries it has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace

from agensh.entries import Entry, EntryType

RELEASES = 4096  # in memory; a reader that is further behind is cut


class Feed:
    """The newest entries of one board, gapless, at most about `capacity` of them."""

    def __init__(self, tail: list[Entry], head: int, capacity: int) -> None:
        self._ring = tail
        self._capacity = capacity
        self._changed = asyncio.Event()
        self.head = head
        self.closed = False
        self.subscribers = 0
        self.released = 0
        """Releases so far."""
        self._releases: deque[Entry] = deque(maxlen=RELEASES)

    @property
    def floor(self) -> int:
        """The seq before the oldest entry in memory."""
        return self.head - len(self._ring)

    def after(self, seq: int, limit: int | None = None) -> list[Entry] | None:
        """Return the first `limit` entries after `seq`, ascending; None when the ring does not reach back to it."""
        if seq < self.floor:
            return None
        start = seq - self.floor
        return self._ring[start:] if limit is None else self._ring[start : start + limit]

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries that follow the head; known ones are left out. ValueError for a gap."""
        fresh = [entry for entry in entries if entry.seq > self.head]
        if not fresh:
            return
        if [entry.seq for entry in fresh] != list(range(self.head + 1, self.head + 1 + len(fresh))):
            raise ValueError(f"entries after {self.head} are not gapless: {fresh[0].seq} to {fresh[-1].seq}")
        self._ring.extend(fresh)
        self.head = fresh[-1].seq
        if len(self._ring) > self._capacity * 5 // 4:  # trimmed in one go, not at every entry
            del self._ring[: len(self._ring) - self._capacity]
        self._wake()

    def keep_claims(self, active: Collection[int]) -> None:
        """Mark every claim in memory whose seq is not in `active` as released."""
        for index, entry in enumerate(self._ring):
            if entry.type is EntryType.CLAIM and entry.active and entry.seq not in active:
                self._ring[index] = replace(entry, active=False)

    def release(self, claims: Iterable[Entry]) -> None:
        """Tell the readers that these claims were released."""
        fresh = [replace(claim, active=False) for claim in claims]
        if fresh:
            self._releases.extend(fresh)
            self.released += len(fresh)
            self._wake()

    def releases_after(self, count: int) -> list[Entry] | None:
        """Return what was released after the first `count` releases; None when that is not in memory any more."""
        missing = self.released - count
        if missing > len(self._releases):
            return None
        return list(self._releases)[len(self._releases) - missing :]

    def close(self) -> None:
        """End every wait: the service stops."""
        self.closed = True
        self._wake()

    async def wait(self, seq: int, seconds: float) -> bool:
        """Wait for an entry after `seq`, a release, or the close; False when `seconds` passed first."""
        released = self.released
        try:
            async with asyncio.timeout(seconds):
                while self.head <= seq and self.released == released and not self.closed:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
