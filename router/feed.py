"""The board as a node host hears it: one stream for all its workers, and a ring of recent entries.

The workers' desks look at the ring when they have something to show to; an entry wakes nobody. A cut stream is opened
again after the last entry, so nothing is missed; the ring is bounded, and what fell out of it is counted by the desks,
with the call that reads it.

A claim that is released, by whomever, is shown to nobody any more: the stream tells it, and what was released while the
stream was away is found by a look at the listing when it is open again.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from agensh.clients.board import Released, StreamOpened
from agensh.clock import Clock
from agensh.entries import Entry, EntryType
from agensh.errors import AgenshError, ServiceError

CAPACITY = 10_000  # entries; a board of 64 workers makes about that many in six hours
FIRST_READ = 2000  # the board's own cap of a listing
RECONNECT_FIRST = 0.5  # seconds
RECONNECT_CEILING = 15.0  # seconds
LONGEST_WISH = 60.0  # seconds; a board that asks for a longer wait is looked at again after that
log = logging.getLogger(__name__)


class EntrySource(Protocol):
    """What the feed needs of a board client."""

    async def read(
        self, *, limit: int = FIRST_READ, after: int | None = None, type: EntryType | None = None
    ) -> list[Entry]:
        """Return the newest entries, or those after `after`, ascending."""
        ...

    def follow(self, after: int) -> AsyncGenerator[Entry | Released | StreamOpened, None]:
        """Yield the entries after `after` and what becomes of claims as they come; ServiceError when it is cut."""
        ...


class BoardFeed:
    """The ring and the task that fills it (`run`)."""

    def __init__(self, source: EntrySource, clock: Clock, *, capacity: int = CAPACITY) -> None:
        self._source = source
        self._clock = clock
        self._capacity = capacity
        self._entries: list[Entry] = []
        self.head = 0
        """Seq of the newest entry."""
        self.lost_through = 0
        """Entries up to this seq fell out of the ring (or were there before it was filled)."""
        self.connected = False
        self.last_heard_at: float | None = None

    def after(self, seq: int) -> list[Entry]:
        """Return the entries of the ring after `seq`, ascending."""
        return self._entries[bisect_right(self._entries, seq, key=_seq) :]

    def add(self, entry: Entry) -> None:
        """Take an entry into the ring; one that is there already is replaced (a CLAIM that was released)."""
        entry = _by_our_clock(entry, self._clock.time())
        place = bisect_right(self._entries, entry.seq, key=_seq)
        if place and self._entries[place - 1].seq == entry.seq:
            self._entries[place - 1] = entry
            return
        if entry.seq <= self.lost_through:
            return
        self._entries.insert(place, entry)
        self.head = max(self.head, entry.seq)
        surplus = len(self._entries) - self._capacity
        if surplus > 0:
            # A tenth at a time: cutting the head of a list costs its length.
            cut = max(surplus, self._capacity // 10)
            self.lost_through = self._entries[cut - 1].seq
            del self._entries[:cut]

    def release(self, seq: int) -> None:
        """A CLAIM was released: it is shown to nobody any more."""
        place = bisect_right(self._entries, seq, key=_seq)
        if place and self._entries[place - 1].seq == seq:
            self._entries[place - 1] = replace(self._entries[place - 1], active=False)

    async def fill(self) -> None:
        """Read the newest entries, before the stream starts."""
        newest = await self._source.read(limit=min(FIRST_READ, self._capacity))
        for entry in newest:
            self.add(entry)
        if len(newest) == min(FIRST_READ, self._capacity):
            self.lost_through = max(self.lost_through, newest[0].seq - 1)

    async def run(self) -> None:
        """Follow the board until cancelled, over any number of cut connections."""
        filled, failures, said = False, 0, ""
        while True:
            least = 0.0
            try:
                if not filled:
                    await self.fill()
                    filled = True
                async with aclosing(self._source.follow(self.head)) as happenings:
                    async for happening in happenings:
                        self.last_heard_at = self._clock.time()
                        match happening:
                            case StreamOpened():
                                log.info("board stream is open", extra={"after": self.head, "failures": failures})
                                self.connected, failures, said = True, 0, ""
                                await self._check_claims()
                            case Released(seq=seq):
                                self.release(seq)
                            case Entry():
                                self.add(happening)
                reason = "the board closed the stream"
            except (AgenshError, LookupError, ValueError, TypeError) as error:
                # No answer, or one that is no entry: the same stream may work in a moment.
                reason = f"{type(error).__name__}: {error}"
                if isinstance(error, ServiceError):
                    least = min(error.retry_after or 0.0, LONGEST_WISH)
            self.connected = False
            failures += 1
            # Full jitter: the node hosts of a large team do not come back to a restarted board in one moment.
            ceiling = min(RECONNECT_CEILING, RECONNECT_FIRST * 2 ** min(failures, 10))
            if reason != said:  # one line a reason, however long it lasts
                log.warning("board stream is cut", extra={"error": reason, "after": self.head})
                said = reason
            await self._clock.sleep(least + random.uniform(0.1, ceiling))

    async def _check_claims(self) -> None:
        """Find out what was released while the stream was away: the listing shows the claims that still stand."""
        claims = [entry for entry in self._entries if entry.type is EntryType.CLAIM and entry.active]
        if not claims:
            return
        listed = await self._source.read(limit=FIRST_READ, type=EntryType.CLAIM)
        # A full listing says nothing of what is older than its first.
        floor = listed[0].seq if len(listed) == FIRST_READ else 0
        standing = {entry.seq for entry in listed}
        for claim in claims:
            if claim.seq >= floor and claim.seq not in standing:
                self.release(claim.seq)


def _by_our_clock(entry: Entry, now: float) -> Entry:
    """Return a CLAIM that stands by the board's clock so that it stands, and ends, by ours.

    They may be an hour apart.
    """
    if entry.expires_at is None or not entry.active:
        return entry
    latest = now + entry.expires_at - entry.created_at
    return entry if now < entry.expires_at <= latest else replace(entry, expires_at=latest)


def _seq(entry: Entry) -> int:
    return entry.seq
