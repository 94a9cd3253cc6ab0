"""How what the listeners heard gets into the queues: many workers' events and cursors in a few statements.

A post of the task channel is an event of every worker. One by one, each costs four statements; put together, a post
costs three for all the workers of a host.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from router.cursors import write_cursors
from router.events import NewEvent
from router.tables import events
from router.writer import Merge

_CHUNK = 500  # rows a statement, below every database's limit of parameters


@dataclass(frozen=True, slots=True)
class Put:
    """What one source of one worker has to say."""

    worker: str
    events: dict[str, NewEvent]
    """By dedupe key."""
    cursor: dict[str, str]
    now: float

    @classmethod
    def of(cls, worker: str, new: Sequence[NewEvent], cursor: Mapping[str, str], now: float) -> Put:
        """Take the first of events with one dedupe key."""
        events: dict[str, NewEvent] = {}
        for event in new:
            events.setdefault(event.dedupe_key, event)
        return cls(worker, events, dict(cursor), now)


async def _put_all(connection: AsyncConnection, puts: Sequence[Put]) -> Sequence[list[tuple[int, NewEvent]]]:
    """Insert the events not known yet and set the cursors of many workers; return what was new, with its id, by put."""
    wanted = {(put.worker, key) for put in puts for key in put.events}
    known = set(await _find(connection, wanted))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for put in puts:
        for key, event in put.events.items():
            if (put.worker, key) not in known:
                rows.setdefault((put.worker, key), _row(put.worker, event, put.now))
    ids: dict[tuple[str, str], int] = {}
    if rows:
        await connection.execute(insert(events), list(rows.values()))
        ids = await _find(connection, set(rows))
    values: dict[tuple[str, str], str] = {}
    for put in puts:
        values.update({(put.worker, source): value for source, value in put.cursor.items()})
    await write_cursors(connection, values)
    fresh: list[list[tuple[int, NewEvent]]] = []
    for put in puts:
        # The first of two puts that bring the same event is told of it.
        mine = [(ids.pop((put.worker, key), None), event) for key, event in put.events.items()]
        fresh.append([(event_id, event) for event_id, event in mine if event_id is not None])
    return fresh


PUTS = Merge(_put_all)


async def _find(connection: AsyncConnection, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the ids of the events there are of those wanted, by worker and dedupe key.

    One query for each post that many workers heard of, or for each worker that heard of many things.
    """
    by_key: dict[str, list[str]] = {}
    by_worker: dict[str, list[str]] = {}
    for worker, key in wanted:
        by_key.setdefault(key, []).append(worker)
        by_worker.setdefault(worker, []).append(key)
    found: dict[tuple[str, str], int] = {}
    one, many, groups = events.c.worker, events.c.dedupe_key, by_worker
    if len(by_key) < len(by_worker):
        one, many, groups = many, one, by_key
    for value, others in groups.items():
        for start in range(0, len(others), _CHUNK):
            query = select(events.c.worker, events.c.dedupe_key, events.c.id).where(
                one == value, many.in_(others[start : start + _CHUNK])
            )
            found.update({(worker, key): event_id for worker, key, event_id in await connection.execute(query)})
    return found


def _row(worker: str, event: NewEvent, now: float) -> dict[str, Any]:
    return {
        "worker": worker,
        "dedupe_key": event.dedupe_key,
        "source": event.source,
        "kind": event.kind,
        "priority": int(event.priority),
        "thread": event.thread[:255],
        "summary": event.summary,
        "body": json.dumps(event.body, ensure_ascii=False),
        "observed_at": event.observed_at,
        "queued_at": now,
        "state": "queued",
        "attempts": 0,
        "handed_out": 0,
        "available_at": now,
        "reason": "",
    }
