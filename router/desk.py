"""The desk of one worker: what it has not been shown yet, over all ways of delivery.

Contract:
- An entry or a direct message is shown once, mid-turn with a tool result or in the prompt of a turn, whichever comes
  first. A worker's own entries, expired and released claims are never shown.
- What was handed out counts as shown only when the worker's next call or the end of its turn proves that it arrived
  (`acknowledge`). Until then a crash makes it pending again, and so does a connection that broke with it on its way.
- Mid-turn, the reminders of clock and budget come first (a turn may be longer than what is left of them), then direct
  messages, then FAIL, CLAIM, FACT, OBSERVED, PATCH_SUMMARY; what does not fit stays pending
  and is counted. A turn's context moves past everything: what it leaves out is counted there, with the call that
  reads it.
- `collect` and `acknowledge` cost no I/O: positions live in memory, and the node host saves them once a second. A crash
  loses at most that second, which repeats notices and loses none.
"""

from __future__ import annotations

import heapq
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clock import Clock
from agensh.entries import NOTICE_ORDER, Entry
from router.events import Kind, QueuedEvent, Source
from router.feed import BoardFeed
from router.mcp.notices import PendingMessage, render_notice
from router.ports import Notice
from router.queue import EventQueue
from router.tables import notices
from router.writer import Merge, Writer, row_inserts

log = logging.getLogger(__name__)

CURSOR = "board"
SHORTEST_LINE = 20  # characters; `[w/FACT +0.0m] x (G1)` has more
REMINDERS = frozenset({Kind.WIND_DOWN, Kind.LAST_CALL, Kind.BUDGET_80, Kind.BUDGET_95})
ANNOUNCED = REMINDERS | {Kind.DIRECT_MESSAGE}
"""The events that become notices."""
_RANK = {type_: rank for rank, type_ in enumerate(NOTICE_ORDER)}


@dataclass(frozen=True, slots=True)
class SharedContext:
    """The unread entries of one turn, ascending."""

    entries: tuple[Entry, ...] = ()
    left_out: int = 0
    after: int = 0
    """`board_read(after=…)` from here shows all of them."""


@dataclass(frozen=True, slots=True)
class _HandOut:
    key: str
    entries: frozenset[int]
    messages: tuple[QueuedEvent, ...]
    """Delivered mid-turn; the events of a turn are acknowledged with the turn."""
    arrived: Callable[[], bool] | None = None
    """Says whether it may have arrived; None: nothing is on its way."""


class Desk:
    """Implements `NoticeDesk`. One event loop only; no method waits."""

    def __init__(self, worker: str, feed: BoardFeed, queue: EventQueue, writer: Writer, clock: Clock) -> None:
        self.worker = worker
        self._feed = feed
        self._queue = queue
        self._writer = writer
        self._clock = clock
        self._cursor = 0
        self._seen: set[int] = set()
        """Acknowledged entries after the cursor."""
        self._out: set[int] = set()
        """Handed out, not acknowledged."""
        self._hand_outs: list[_HandOut] = []
        self._messages: dict[int, QueuedEvent] = {}
        """Chat events and reminders that wait in the queue: direct messages and reminders become notices, the other
        chat events are withdrawn when read."""
        self._noticed: set[int] = set()
        """Events that became notices, or were read, since the last turn began: a claim under way may have taken them,
        too."""
        self._turn_id: int | None = None
        self._saved = ""
        self._moved = False
        """The position may have changed since it was saved."""

    def restore(self, cursor: str | None, messages: Sequence[QueuedEvent]) -> None:
        """Take up the saved position and what waits in the queue."""
        if cursor:
            value = json.loads(cursor)
            self._cursor, self._seen = int(value["seq"]), set(value["seen"])
            self._saved = cursor
        self.expect(messages)

    def expect(self, events: Iterable[QueuedEvent]) -> None:
        """Chat events and control events are in the queue now."""
        self._messages.update(
            (event.id, event)
            for event in events
            if event.id > 0 and (event.source is Source.MATTERMOST or event.kind in REMINDERS)
        )

    def waiting(self) -> bool:
        """See `NoticeDesk.waiting`."""
        return bool(self._messages) or self._feed.head > self._cursor

    def collect(self, room: int, via: str = "mcp", arrived: Callable[[], bool] | None = None) -> Notice | None:
        """See `NoticeDesk.collect`."""
        self._take_back_lost()
        direct = [event for event in self._messages.values() if event.kind in ANNOUNCED]
        if not direct and self._feed.head <= self._cursor:
            return None
        pending = self._pending()
        if not direct and not pending:
            return None
        # Thousands may wait; only as many as can fit are put in order and into words.
        entries = heapq.nsmallest(room // SHORTEST_LINE + 1, pending, key=lambda entry: (_RANK[entry.type], entry.seq))
        rendered = render_notice(
            [_message(event) for event in direct],
            entries,
            room=room,
            now=self._clock.time(),
            more=len(pending) - len(entries),
        )
        if rendered is None:
            return None
        shown = set(rendered.shown)
        self._hand_out(
            [entry for entry in entries if f"g{entry.seq}" in shown],
            [event for event in direct if event.ref in shown],
            via=via,
            arrived=arrived,
        )
        return Notice(rendered.text, rendered.shown)

    def acknowledge(self) -> None:
        """See `NoticeDesk.acknowledge`."""
        if self._hand_outs:
            self._take_back_lost()
        if not self._hand_outs:
            return
        keys = [hand_out.key for hand_out in self._hand_outs]
        messages = [event.id for hand_out in self._hand_outs for event in hand_out.messages]
        self._moved = True
        self._seen |= self._out
        self._out.clear()
        self._hand_outs.clear()
        self._advance()
        now = self._clock.time()
        self._writer.record_item(_ACKNOWLEDGED, (keys, now))
        self._queue.note_acknowledged(messages)

    def worker_read(self, posts: Collection[str], arrived: Callable[[], bool] | None = None) -> None:
        """See `NoticeDesk.worker_read`."""
        box = self._queue.posts
        waiting = [*self._messages.values(), *(box.waiting() if box is not None else ())]
        chosen = [event for event in waiting if event.body.get("post_id") in posts]
        for event in chosen:
            self._messages.pop(event.id, None)
            self._noticed.add(event.id)
        if chosen:
            self._hand_outs.append(_HandOut(uuid.uuid4().hex, frozenset(), tuple(chosen), arrived))
            self._queue.note_handed_out([event.id for event in chosen], self._turn_id, "read")

    def untold(self, events: Sequence[QueuedEvent]) -> tuple[QueuedEvent, ...]:
        """Return the events of a claim that no tool result has shown meanwhile; ask before `open_turn`.

        A call between two turns may hand a message out, or read it, while the claim of the next turn is on its way to
        the database.
        """
        return tuple(event for event in events if event.id not in self._noticed)

    def open_turn(
        self, turn_id: int, events: Sequence[QueuedEvent], *, room: int, length: Callable[[Entry], int]
    ) -> SharedContext:
        """Hand out the events and the unread entries of a turn; `length` says how many characters an entry takes."""
        self._turn_id = turn_id
        for event in events:
            self._messages.pop(event.id, None)
        self._noticed.clear()
        pending = self._pending()
        chosen: list[Entry] = []
        left = room
        for entry in sorted(pending, key=lambda entry: (_RANK[entry.type], -entry.seq)):
            left -= length(entry)
            if left < 0:
                break
            chosen.append(entry)
        chosen.sort(key=lambda entry: entry.seq)
        fallen_out = max(0, self._feed.lost_through - self._cursor)
        context = SharedContext(tuple(chosen), len(pending) - len(chosen) + fallen_out, self._cursor)
        direct = [event for event in events if event.kind is Kind.DIRECT_MESSAGE]
        self._record(self._announce(pending), chosen, direct, via="turn")
        return context

    def close_turn(self, *, delivered: bool) -> None:
        """The turn ended; `delivered` says that its end proves what was handed out."""
        if delivered:
            self.acknowledge()
        else:
            self._take_back(self._hand_outs)
        self._turn_id = None

    def unsaved(self) -> str | None:
        """Return the position to save, or None when it was saved already; the caller saves it."""
        if not self._moved:
            return None
        self._moved = False
        value = json.dumps({"seq": self._cursor, "seen": sorted(self._seen)})
        if value == self._saved:
            return None
        self._saved = value
        return value

    def oldest_unseen(self) -> float | None:
        """Return when the oldest thing was posted that the worker has not been shown."""
        times = [entry.created_at for entry in self._pending()]
        times += [event.observed_at for event in self._messages.values() if event.kind in ANNOUNCED]
        return min(times, default=None)

    def _take_back_lost(self) -> None:
        lost = [hand_out for hand_out in self._hand_outs if hand_out.arrived is not None and not hand_out.arrived()]
        if lost:
            log.info("notices were lost on their way", extra={"worker": self.worker, "results": len(lost)})
            self._take_back(lost)

    def _take_back(self, hand_outs: Sequence[_HandOut]) -> None:
        messages = [event for hand_out in hand_outs for event in hand_out.messages]
        for hand_out in hand_outs:
            self._out -= hand_out.entries
        self._hand_outs = [hand_out for hand_out in self._hand_outs if hand_out not in hand_outs]
        self._noticed.difference_update(event.id for event in messages)
        self.expect(messages)
        self._queue.note_returned([event.id for event in messages])

    def _pending(self) -> list[Entry]:
        now = self._clock.time()
        return [
            entry
            for entry in self._feed.after(self._cursor)
            if entry.seq not in self._seen and entry.seq not in self._out and self._concerns(entry, now)
        ]

    def _concerns(self, entry: Entry, now: float) -> bool:
        expired = entry.expires_at is not None and entry.expires_at <= now
        return entry.worker != self.worker and entry.active and not expired

    def _advance(self) -> None:
        now = self._clock.time()
        for entry in self._feed.after(self._cursor):
            if entry.seq in self._out or (entry.seq not in self._seen and self._concerns(entry, now)):
                break
            self._cursor = entry.seq
            self._seen.discard(entry.seq)
        # What fell out of the ring cannot be pending any more.
        self._seen = {seq for seq in self._seen if seq > self._cursor}

    def _hand_out(
        self,
        entries: Sequence[Entry],
        messages: Sequence[QueuedEvent],
        *,
        via: str,
        arrived: Callable[[], bool] | None,
    ) -> None:
        for event in messages:
            del self._messages[event.id]
            self._noticed.add(event.id)
        key = self._announce(entries, messages, arrived)
        self._record(key, entries, messages, via=via)
        self._queue.note_handed_out([event.id for event in messages], self._turn_id, "notice")

    def _announce(
        self,
        entries: Sequence[Entry],
        messages: Sequence[QueuedEvent] = (),
        arrived: Callable[[], bool] | None = None,
    ) -> str:
        hand_out = _HandOut(uuid.uuid4().hex, frozenset(entry.seq for entry in entries), tuple(messages), arrived)
        self._hand_outs.append(hand_out)
        self._out |= hand_out.entries
        return hand_out.key

    def _record(self, key: str, entries: Sequence[Entry], messages: Sequence[QueuedEvent], *, via: str) -> None:
        row = {"hand_out": key, "worker": self.worker, "shown_at": self._clock.time(), "via": via}
        rows = [row | {"ref": f"g{entry.seq}", "kind": "entry", "posted_at": entry.created_at} for entry in entries] + [
            row | {"ref": event.ref, "kind": _notice_kind(event), "posted_at": event.observed_at} for event in messages
        ]
        if rows:
            self._writer.record_item(_NOTICES, rows)


def _message(event: QueuedEvent) -> PendingMessage:
    return PendingMessage(
        ref=event.ref,
        sender=str(event.body.get("author", "")),
        text=str(event.body.get("text") or event.summary),
        posted_at=event.observed_at,
        reminder=event.kind in REMINDERS,
    )


def _notice_kind(event: QueuedEvent) -> str:
    return "reminder" if event.kind in REMINDERS else "direct_message"


async def _acknowledge_all(connection: AsyncConnection, items: Sequence[tuple[list[str], float]]) -> Sequence[None]:
    # One time for all that one transaction takes: they differ by milliseconds.
    keys = [key for keys, _ in items for key in keys]
    now = max(now for _, now in items)
    for start in range(0, len(keys), _CHUNK):
        chosen = notices.c.hand_out.in_(keys[start : start + _CHUNK])
        await connection.execute(update(notices).where(chosen).values(acked_at=now))
    return [None] * len(items)


_CHUNK = 500  # keys a statement
_NOTICES = row_inserts(notices)
_ACKNOWLEDGED = Merge(_acknowledge_all, last=True)
