"""Durable queue of one worker's events.

Contract:
- At least once: an event is `sent` only after its delivery was proved (the turn ended well, or the worker's next call
  showed that a notice arrived). A crash may repeat the last delivery; it loses no event.
- A source's cursor and its events are committed in one transaction; an event known by `(worker, dedupe_key)` is
  dropped, over restarts too.
- Order: control, direct messages, mentions, the rest; within these the order in which they were queued.
- A failed delivery waits 5 s, 10 s, … up to 5 min with jitter and is tried again; after `attempts` failures the event
  is `dead` with the reason of the last one.
- `recover` at the start puts everything a former host had in flight back: `queued`, without counting a failure; and
  nothing waits longer from then on than after a failure, whatever the former host's clock said.
- The posts of the task channel are kept once for all (`router/posts.py`); they are claimed with the rest.
- The cost of a poll depends on what is waiting, not on how much was ever delivered.

States: `queued → in_flight → sent`, `queued → in_flight → queued` (failed), `dead`, and `withdrawn` for a message the
worker had read by itself before it was delivered.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clock import Clock
from router.claim import CLAIM_LIMIT, Claim, fitting, in_few_lines
from router.events import Kind, NewEvent, Priority, QueuedEvent, Source
from router.intake import PUTS, Put
from router.posts import PostBox, PostFeed
from router.tables import cursors, events, turns
from router.waiting import sleep_or_event
from router.writer import Writer

_DESK_SOURCES = (Source.MATTERMOST, Source.CONTROL)
_CHUNK = 500  # rows a statement, below every database's limit of parameters


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failed delivery waits, and how often it is tried."""

    first: float = 5.0  # seconds
    factor: float = 2.0
    ceiling: float = 300.0  # seconds
    jitter: float = 0.2  # the wait varies by this share, so that a team does not come back in one moment
    attempts: int = 8

    @property
    def longest(self) -> float:
        """Seconds that no wait exceeds."""
        return self.ceiling * (1 + self.jitter)

    def wait(self, failures: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Return the seconds to wait after that many failures (1 first)."""
        base = min(self.ceiling, self.first * self.factor ** min(failures - 1, 32))
        return base * uniform(1 - self.jitter, 1 + self.jitter)


@dataclass(frozen=True, slots=True)
class Depth:
    """What waits in a queue."""

    waiting: int
    oldest_at: float | None
    """Epoch seconds of the oldest thing not delivered yet."""


class EventQueue:
    """The queue of one worker; an `EventSink`. `on_new` hears of events that were not known, after the commit."""

    def __init__(
        self,
        worker: str,
        writer: Writer,
        clock: Clock,
        policy: RetryPolicy,
        *,
        on_new: Callable[[Sequence[QueuedEvent]], None] = lambda _new: None,
        posts: PostFeed | None = None,
    ) -> None:
        """`posts` are those of the task channel; without them a worker has only events of its own."""
        self.worker = worker
        self.posts = posts.box(worker, self.wake) if posts is not None else None
        self.policy = policy
        self.on_new = on_new
        self._writer = writer
        self._clock = clock
        self._changed = asyncio.Event()
        self._cursors: dict[str, str] = {}
        """Committed cursors; all of them once `_loaded`, for nobody else writes them."""
        self._loaded = False

    async def put(self, new: Sequence[NewEvent], cursor: Mapping[str, str] | None = None) -> int:
        """Commit the events not yet known and the cursor rows together; return how many were new."""
        put = Put.of(self.worker, new, cursor or {}, self._clock.time())
        try:
            known = await self._writer.submit_item(PUTS, put)
        except asyncio.CancelledError:
            self._changed.set()  # they are written all the same, and nobody else tells of them
            raise
        fresh = [_queued(event_id, event) for event_id, event in known]
        self._cursors.update(cursor or {})
        if fresh:
            self.on_new(fresh)
            self._changed.set()
        return len(fresh)

    async def cursor(self, source: str) -> str | None:
        """Return a cursor's committed value; None when there is none yet."""
        if not self._loaded:
            query = select(cursors.c.source, cursors.c.value).where(cursors.c.worker == self.worker)
            rows = await self._writer.read(lambda connection: connection.execute(query))
            # What was put meanwhile is newer than what was read.
            self._cursors = {row.source: row.value for row in rows} | self._cursors
            self._loaded = True
        return self._cursors.get(source) or None

    def wake(self) -> None:
        """Something may be there to be claimed."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when an event may be claimed."""
        while True:
            self._changed.clear()
            due = await self._next_due()
            if due is None:
                await self._changed.wait()
            elif (left := due - self._clock.time()) <= 0:
                return
            else:
                await sleep_or_event(self._clock, left, self._changed)

    async def claim(self, session_id: str) -> Claim | None:
        """Open a turn and take the events that are due into it; None when there are none."""
        worker, now = self.worker, self._clock.time()
        due = (
            select(events)
            .where(events.c.worker == worker, events.c.state == "queued", events.c.available_at <= now)
            .order_by(events.c.priority, events.c.id)
            .limit(CLAIM_LIMIT)
        )

        async def operation(connection: AsyncConnection) -> Claim | None:
            waiting = [_event(row) for row in await connection.execute(due)]
            found = fitting(waiting)
            told = in_few_lines(posts) if len(found) == len(waiting) < CLAIM_LIMIT else []
            if not found and not told:
                return None
            turn = await connection.execute(
                insert(turns).values(**new_turn(worker, session_id, now, len(found) + len(told)))
            )
            assert turn.inserted_primary_key is not None
            turn_id = int(turn.inserted_primary_key[0])
            await _update(
                connection,
                [event.id for event in found],
                {"state": "in_flight", "turn_id": turn_id, "via": "turn", "handed_out": events.c.handed_out + 1},
            )
            return Claim(turn_id, (*found, *told), len(posts) - len(told))

        posts = await self.posts.waiting_all(now) if self.posts is not None else []
        claim = await self._writer.submit(operation)
        if claim is not None and self.posts is not None:
            self.posts.take_out([event.id for event in claim.events if event.id < 0])
        return claim

    # What a turn delivered. Ids below 0 are posts of the task channel: their state is the worker's position.

    async def ack(self, ids: Collection[int]) -> None:
        """The turn that carried them ended well: they are `sent`."""
        now = self._clock.time()
        ids = self._rows_of(ids, self._arrived)
        await self._change(ids, {"state": "sent", "delivered_at": now})

    async def fail(self, ids: Collection[int], reason: str) -> None:
        """Their delivery failed: they wait and are tried again, or are `dead` after the last attempt."""
        now, policy = self._clock.time(), self.policy
        chosen = sorted(event_id for event_id in ids if event_id > 0)

        async def operation(connection: AsyncConnection) -> None:
            rows = await connection.execute(
                select(events.c.id, events.c.attempts).where(events.c.id.in_(chosen), events.c.state == "in_flight")
            )
            for event_id, attempts in rows.all():
                failures = attempts + 1
                dead = failures >= policy.attempts
                await connection.execute(
                    update(events)
                    .where(events.c.id == event_id)
                    .values(
                        state="dead" if dead else "queued",
                        attempts=failures,
                        reason=reason,
                        available_at=now if dead else now + policy.wait(failures),
                        **_NOT_HANDED_OUT,
                    )
                )

        if chosen:
            await self._writer.submit(operation)
        # Last, because callers repeat this while the database is away, and each repetition would count as a failure.
        self._rows_of(ids, lambda posts, seqs: posts.fail(seqs, now, policy.attempts, policy.wait))
        self._changed.set()

    async def put_back(self, ids: Collection[int], *, wait: float = 0.0, reason: str = "") -> None:
        """Make them wait again without counting a failure: the provider asked for a pause, or the host stops."""
        due = self._clock.time() + wait
        values = {"state": "queued", "available_at": due, "reason": reason, **_NOT_HANDED_OUT}
        await self._change(self._rows_of(ids, lambda posts, seqs: posts.put_back(seqs, due=due)), values)
        self._changed.set()

    async def recover(self) -> int:
        """Put back what a former host had in flight and close its turns; return how many events that were."""
        worker, now = self.worker, self._clock.time()
        latest = now + self.policy.longest

        async def operation(connection: AsyncConnection) -> int:
            result = await connection.execute(
                update(events)
                .where(events.c.worker == worker, events.c.state == "in_flight")
                .values(state="queued", available_at=now, **_NOT_HANDED_OUT)
            )
            # Waits were counted by the clock of the former host, which may have been ahead of this one by an hour.
            await connection.execute(
                update(events)
                .where(events.c.worker == worker, events.c.state == "queued", events.c.available_at > latest)
                .values(available_at=latest)
            )
            await connection.execute(
                update(turns)
                .where(turns.c.worker == worker, turns.c.ended_at.is_(None))
                .values(ended_at=now, outcome="crashed", reason="The node host ended during the turn.")
            )
            return result.rowcount

        count = await self._writer.submit(operation)
        self._changed.set()
        return count

    async def waiting_posts(self) -> list[QueuedEvent]:
        """Return the chat's and the clock's events that were not delivered yet, for the desk."""
        query = (
            select(events)
            .where(events.c.worker == self.worker, events.c.state == "queued", events.c.source.in_(_DESK_SOURCES))
            .order_by(events.c.id)
        )
        rows = await self._writer.read(lambda connection: connection.execute(query))
        return [_event(row) for row in rows]

    async def depth(self) -> Depth:
        """Return how much waits, and since when."""
        query = select(func.count(), func.min(events.c.observed_at)).where(
            events.c.worker == self.worker, events.c.state.in_(("queued", "in_flight"))
        )
        count, oldest = (await self._writer.read(lambda connection: connection.execute(query))).one()
        return self.with_posts(Depth(int(count), oldest))

    def with_posts(self, depth: Depth) -> Depth:
        """Return the depth of the worker's rows with the posts of the task channel."""
        if self.posts is None:
            return depth
        count, oldest = self.posts.depth()
        times = [time for time in (depth.oldest_at, oldest) if time is not None]
        return Depth(depth.waiting + count, min(times, default=None))

    # Mid-turn deliveries cost the tool call no I/O: they are recorded in order, behind the claim of their turn. When
    # the host dies before that, the event is still queued, which repeats it and loses nothing.

    def note_handed_out(self, ids: Collection[int], turn_id: int | None, via: str) -> None:
        """A tool result carries them now (`notice`), or the worker read them by itself (`read`)."""
        ids = self._rows_of(ids, lambda posts, seqs: posts.take_out(seqs))
        more = {"handed_out": events.c.handed_out + 1} if via == "notice" else {}
        self._note(ids, {"state": "in_flight", "turn_id": turn_id, "via": via, **more}, _QUEUED)

    def note_acknowledged(self, ids: Collection[int]) -> None:
        """The worker's next call proved that the result arrived."""
        ids = self._rows_of(ids, self._arrived)
        state = case((events.c.via == "read", "withdrawn"), else_="sent")
        self._note(ids, {"state": state, "delivered_at": self._clock.time()}, _BY_TOOL_RESULT)

    def note_returned(self, ids: Collection[int]) -> None:
        """Nothing proved that the result arrived: they are queued again."""
        ids = self._rows_of(ids, lambda posts, seqs: posts.put_back(seqs))
        self._note(ids, {"state": "queued", "available_at": self._clock.time(), **_NOT_HANDED_OUT}, _BY_TOOL_RESULT)
        self._changed.set()

    def _rows_of(self, ids: Collection[int], settle: Callable[[PostBox, list[int]], None]) -> list[int]:
        """Return the ids of rows, and `settle` the posts among them."""
        seqs = [event_id for event_id in ids if event_id < 0]
        if seqs and self.posts is not None:
            settle(self.posts, seqs)
        return [event_id for event_id in ids if event_id > 0]

    @staticmethod
    def _arrived(posts: PostBox, ids: list[int]) -> None:
        posts.settle(ids)

    def _note(self, ids: Collection[int], values: dict[str, Any], where: ColumnElement[bool]) -> None:
        chosen = sorted(ids)
        if chosen:
            self._writer.record(lambda connection: _update(connection, chosen, values, where))

    async def _change(self, ids: Collection[int], values: dict[str, Any]) -> None:
        chosen = sorted(ids)
        if chosen:
            await self._writer.submit(lambda connection: _update(connection, chosen, values, _IN_FLIGHT))

    async def _next_due(self) -> float | None:
        if self.posts is not None and (due_posts := self.posts.due()) is not None and due_posts <= self._clock.time():
            return due_posts
        query = select(func.min(events.c.available_at)).where(
            events.c.worker == self.worker, events.c.state == "queued"
        )
        await self._writer.flush()
        due: float | None = await self._writer.read(lambda connection: connection.scalar(query))
        posts = self.posts.due() if self.posts is not None else None
        return min((time for time in (due, posts) if time is not None), default=None)


async def depths(writer: Writer, workers: Sequence[str]) -> dict[str, Depth]:
    """Return how much waits for each of `workers`; who has nothing waiting is left out. One query for all."""
    query = (
        select(events.c.worker, func.count(), func.min(events.c.observed_at))
        .where(events.c.worker.in_(workers), events.c.state.in_(("queued", "in_flight")))
        .group_by(events.c.worker)
    )
    rows = await writer.read(lambda connection: connection.execute(query))
    return {worker: Depth(int(count), oldest) for worker, count, oldest in rows}


_NOT_HANDED_OUT: dict[str, Any] = {"turn_id": None, "via": None}
_QUEUED = events.c.state == "queued"
_IN_FLIGHT = events.c.state == "in_flight"
_BY_TOOL_RESULT = and_(_IN_FLIGHT, events.c.via != "turn")


async def _update(
    connection: AsyncConnection, ids: list[int], values: dict[str, Any], where: ColumnElement[bool] = _QUEUED
) -> None:
    for start in range(0, len(ids), _CHUNK):
        chosen = events.c.id.in_(ids[start : start + _CHUNK])
        await connection.execute(update(events).where(chosen, where).values(**values))


def _queued(event_id: int, event: NewEvent) -> QueuedEvent:
    return QueuedEvent(
        event_id,
        event.source,
        event.kind,
        event.priority,
        event.thread[:255],
        event.summary,
        dict(event.body),
        event.observed_at,
        0,
        0,
    )


def _event(row: Row[Any]) -> QueuedEvent:
    return QueuedEvent(
        id=row.id,
        source=Source(row.source),
        kind=Kind(row.kind),
        priority=Priority(row.priority),
        thread=row.thread,
        summary=row.summary,
        body=json.loads(row.body),
        observed_at=row.observed_at,
        attempts=row.attempts,
        handed_out=row.handed_out,
    )


def new_turn(worker: str, session_id: str, now: float, count: int) -> dict[str, Any]:
    """Return the row of a turn that begins with that many events."""
    return {
        "worker": worker,
        "session_id": session_id,
        "started_at": now,
        "reason": "",
        "prompt": "",
        "text": "",
        "events": count,
        "entries": 0,
        "input_tokens": 0,
        "cached_tokens": 0,
        "output_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": 0.0,
    }
