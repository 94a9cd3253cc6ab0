"""The writer of a node: what it puts together, in which order, and whose mistake reaches whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clock import SystemClock
from agensh.urls import sqlite_url
from router.events import Kind, NewEvent, Source
from router.intake import PUTS, Put
from router.tables import cursors, events, runs
from router.writer import Merge, Writer, row_inserts
from tests.support.router_database import open_writer


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    async with open_writer(sqlite_url(tmp_path / "runtime.sqlite3"), SystemClock()) as running:
        yield running


def event(key: str, summary: str = "said something") -> NewEvent:
    return NewEvent(Source.MATTERMOST, Kind.CHANNEL_POST, key, summary, 1.0)


async def _set(happened: asyncio.Event) -> None:
    happened.set()


async def test_items_of_a_merge_are_one_call_before_or_after_everything_else(writer: Writer) -> None:
    heard: list[str] = []

    async def early(_connection: AsyncConnection, items: Sequence[str]) -> Sequence[str]:
        heard.append("early " + " ".join(items))
        return [item.upper() for item in items]

    async def late(_connection: AsyncConnection, items: Sequence[str]) -> Sequence[None]:
        heard.append("late " + " ".join(items))
        return [None] * len(items)

    async def alone(_connection: AsyncConnection) -> None:
        heard.append("alone")

    async def waits(_connection: AsyncConnection) -> None:
        under_way.set()
        await gathered.wait()

    first, last = Merge(early), Merge(late, last=True)
    under_way, gathered = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.submit(waits))
        await under_way.wait()
        writer.record_item(last, "x")
        writer.record(alone)
        writer.record_item(last, "y")
        callers = [group.create_task(writer.submit_item(first, item)) for item in "abc"]
        group.create_task(_set(gathered))
    assert [caller.result() for caller in callers] == ["A", "B", "C"]
    assert heard == ["early a b c", "alone", "late x y"]


async def test_a_mistake_in_one_item_reaches_only_its_own_caller(writer: Writer) -> None:
    inserts = row_inserts(runs)
    rows = [[{"run_id": run_id, "t0": 1.0, "state": "running"}] for run_id in ("a", "b", "a", "c")]
    results = await asyncio.gather(*(writer.submit_item(inserts, row) for row in rows), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), type(None), IntegrityError, type(None)]
    found = await writer.read(lambda connection: connection.scalars(select(runs.c.run_id).order_by(runs.c.run_id)))
    assert list(found) == ["a", "b", "c"]


async def test_rows_are_there_for_what_changes_them_in_the_same_transaction(writer: Writer) -> None:
    writer.record(lambda connection: connection.execute(update(runs).values(state="finished")))
    writer.record_item(row_inserts(runs), [{"run_id": "a", "t0": 1.0, "state": "running"}])
    await writer.flush()
    assert await writer.read(lambda connection: connection.scalar(select(runs.c.state))) == "finished"


async def test_one_post_is_new_for_each_worker_once(writer: Writer) -> None:
    puts = [Put.of(f"w{n}", [event("p1"), event("p1", "again")], {"channel": f"p{n}"}, 5.0) for n in range(700)]
    fresh = await asyncio.gather(*(writer.submit_item(PUTS, put) for put in puts))
    assert [[found.summary for _, found in mine] for mine in fresh] == [["said something"]] * 700
    assert len({event_id for mine in fresh for event_id, _ in mine}) == 700
    more = [Put.of("w1", [event("p1"), event("p2")], {}, 6.0), Put.of("w1", [event("p2"), event("p3")], {}, 6.0)]
    fresh = await asyncio.gather(*(writer.submit_item(PUTS, put) for put in more))
    assert [[found.dedupe_key for _, found in mine] for mine in fresh] == [["p2"], ["p3"]]
    ids = await writer.read(lambda connection: connection.execute(select(events.c.id, events.c.worker)))
    assert {event_id: worker for event_id, worker in ids if worker == "w1"}.keys() >= {found for found, _ in fresh[0]}


async def test_cursors_are_set_changed_and_taken_away(writer: Writer) -> None:
    for value in ("1", "2"):
        await writer.submit_item(PUTS, Put.of("w1", [], {"a": value, "b": value}, 5.0))
    await writer.submit_item(PUTS, Put.of("w1", [], {"b": ""}, 5.0))
    rows = await writer.read(lambda connection: connection.execute(select(cursors.c.source, cursors.c.value)))
    assert [tuple(row) for row in rows] == [("a", "2")]
