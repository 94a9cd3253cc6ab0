"""The queue's contract, on every database it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.db import DatabaseUnavailable
from router.claim import CLAIM_CHARS
from router.events import Kind, NewEvent, Priority, QueuedEvent, Source
from router.idle import control_event
from router.prompt import event_lines
from router.queue import EventQueue, RetryPolicy
from router.tables import cursors, events, turns
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer
from tests.support.router_stage import comment, direct_message, until

ME = "demo-worker1"
STEADY = RetryPolicy(jitter=0.0, attempts=3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def writer(runtime_database: tuple[str, str], clock: ManualClock) -> AsyncIterator[Writer]:
    url, isolation = runtime_database
    async with open_writer(url, clock, isolation=isolation) as writer:
        yield writer


@pytest.fixture
def queue(writer: Writer, clock: ManualClock) -> EventQueue:
    return EventQueue(ME, writer, clock, STEADY)


async def states(writer: Writer) -> dict[str, str]:
    await writer.flush()
    rows = await writer.read(lambda connection: connection.execute(select(events.c.dedupe_key, events.c.state)))
    return {row.dedupe_key: row.state for row in rows}


async def one(writer: Writer, key: str) -> Any:
    await writer.flush()
    query = select(events).where(events.c.dedupe_key == key)
    return (await writer.read(lambda connection: connection.execute(query))).one()


async def test_a_known_event_is_dropped_also_after_a_restart_and_in_one_batch(
    writer: Writer, queue: EventQueue, clock: ManualClock
) -> None:
    heard: list[QueuedEvent] = []
    queue.on_new = heard.extend
    assert await queue.put([comment(1, "a"), comment(1, "again"), comment(2, "b")], {"gitea": "7"}) == 2
    assert await queue.put([comment(2, "b"), comment(3, "c")], {"gitea": "8"}) == 1
    again = EventQueue(ME, writer, clock, STEADY)
    assert await again.put([comment(3, "c")], {"gitea": "9"}) == 0
    assert [event.summary for event in heard] == ["a", "b", "c"]
    assert await again.cursor("gitea") == "9"


async def test_the_key_is_compared_with_case_and_accents_and_per_worker(
    writer: Writer, queue: EventQueue, clock: ManualClock
) -> None:
    keys = ["k:Ab", "k:ab", "k:AB", "k:äb", "k:ab\N{SNOWMAN}"]
    made = [NewEvent(Source.GITEA, Kind.COMMENT, key, "x", 0.0) for key in keys]
    assert await queue.put(made) == len(keys)
    assert await EventQueue("demo-worker2", writer, clock, STEADY).put(made) == len(keys)
    assert await queue.put(made) == 0


async def test_long_messages_that_piled_up_come_in_turns_that_a_context_can_hold(queue: EventQueue) -> None:
    made = [
        NewEvent(
            Source.MATTERMOST, Kind.DIRECT_MESSAGE, f"k:{number}", "short", 0.0, "t", Priority.DIRECT, {"text": text}
        )
        for number, text in enumerate(["x" * 16_000] * 100 + ["y" * CLAIM_CHARS])
    ]
    await queue.put([*made, comment(1, "the rest")])
    seen: list[str] = []
    while (claim := await queue.claim("s")) is not None:
        lines = event_lines(claim.events)
        assert sum(map(len, lines)) < CLAIM_CHARS + 200 * len(lines)
        seen += [str(event.body.get("text", event.summary)) for event in claim.events]
        await queue.ack([event.id for event in claim.events])
    assert seen == [event.body["text"] for event in made] + ["the rest"]


async def test_events_and_cursor_are_committed_together(writer: Writer, queue: EventQueue) -> None:
    await queue.put([comment(1, "a")], {"gitea": "1", "old": "x"})
    bad = NewEvent(Source.GITEA, Kind.COMMENT, None, "no key", 0.0)  # type: ignore[arg-type]  # the database refuses it
    with pytest.raises(Exception, match=r"(?i)null"):
        await queue.put([comment(2, "b"), bad], {"gitea": "2"})
    assert await queue.cursor("gitea") == "1"
    assert await states(writer) == {"gitea:comment:1": "queued"}
    await queue.put([], {"old": ""})
    assert await queue.cursor("old") is None
    rows = await writer.read(
        lambda connection: connection.execute(select(cursors.c.source).where(cursors.c.worker == ME))
    )
    assert rows.scalars().all() == ["gitea"]


async def test_a_mistake_in_one_operation_reaches_only_its_caller(writer: Writer, queue: EventQueue) -> None:
    bad = NewEvent(Source.GITEA, Kind.COMMENT, None, "no key", 0.0)  # type: ignore[arg-type]
    results = await asyncio.gather(
        queue.put([comment(1, "a")]), queue.put([bad]), queue.put([comment(2, "b")]), return_exceptions=True
    )
    assert results[0] == 1
    assert results[2] == 1
    assert isinstance(results[1], Exception)
    assert set(await states(writer)) == {"gitea:comment:1", "gitea:comment:2"}


async def test_text_of_any_kind_comes_back_as_it_was(queue: EventQueue) -> None:
    said = "✅→ 🫠 𠜎 100% _x_ \\ 'quoted' \"double\"\ttab\nline"
    await queue.put([direct_message(1, said)])
    claim = await queue.claim("s")
    assert claim is not None
    assert claim.events[0].summary == said
    assert claim.events[0].body["text"] == said


async def test_a_turn_takes_control_then_direct_messages_then_mentions_then_the_rest(queue: EventQueue) -> None:
    mention = NewEvent(Source.MATTERMOST, Kind.MENTION, "m", "mention", 0.0, priority=Priority.MENTION)
    await queue.put([comment(1, "first"), comment(2, "second")])
    await queue.put([mention, direct_message(1, "direct"), control_event(Kind.IDLE, "idle:1", 0.0)])
    claim = await queue.claim("s")
    assert claim is not None
    assert [event.kind for event in claim.events] == ["idle", "direct_message", "mention", "comment", "comment"]
    assert [event.summary for event in claim.events[-2:]] == ["first", "second"]
    assert await queue.claim("s") is None


async def test_what_a_turn_delivered_is_sent_once(writer: Writer, queue: EventQueue, clock: ManualClock) -> None:
    await queue.put([comment(1, "a")])
    claim = await queue.claim("session-1")
    assert claim is not None
    row = await one(writer, "gitea:comment:1")
    assert (row.state, row.turn_id, row.via, row.handed_out) == ("in_flight", claim.turn_id, "turn", 1)
    await clock.advance(3)
    await queue.ack([event.id for event in claim.events])
    row = await one(writer, "gitea:comment:1")
    assert (row.state, row.delivered_at) == ("sent", clock.time())
    await queue.fail([event.id for event in claim.events], "too late")
    await queue.recover()
    assert (await one(writer, "gitea:comment:1")).state == "sent"
    assert await queue.claim("session-1") is None


async def test_a_failed_delivery_waits_longer_each_time_and_dies_with_its_reason(
    writer: Writer, queue: EventQueue, clock: ManualClock
) -> None:
    await queue.put([comment(1, "a")])
    for wait in (5.0, 10.0):
        claim = await queue.claim("s")
        assert claim is not None
        await queue.fail([event.id for event in claim.events], f"reason {wait:g}")
        assert (await one(writer, "gitea:comment:1")).available_at == clock.time() + wait
        await clock.advance(wait - 0.01)
        assert await queue.claim("s") is None
        await clock.advance(0.01)
    claim = await queue.claim("s")
    assert claim is not None
    await queue.fail([event.id for event in claim.events], "the last one")
    row = await one(writer, "gitea:comment:1")
    assert (row.state, row.attempts, row.reason, row.handed_out) == ("dead", 3, "the last one", 3)
    await clock.advance(10_000)
    assert await queue.claim("s") is None


async def test_putting_back_counts_no_failure(writer: Writer, queue: EventQueue, clock: ManualClock) -> None:
    await queue.put([comment(1, "a")])
    for _ in range(5):
        claim = await queue.claim("s")
        assert claim is not None
        await queue.put_back([event.id for event in claim.events], wait=60.0, reason="rate limited")
        assert await queue.claim("s") is None
        await clock.advance(60)
    row = await one(writer, "gitea:comment:1")
    assert (row.state, row.attempts, row.reason) == ("queued", 0, "rate limited")


async def test_a_restart_puts_back_what_was_in_flight_and_closes_its_turn(
    writer: Writer, queue: EventQueue, clock: ManualClock
) -> None:
    await queue.put([comment(1, "a"), direct_message(1, "b")])
    claim = await queue.claim("s")
    assert claim is not None
    again = EventQueue(ME, writer, clock, STEADY)
    assert await again.recover() == 2
    repeated = await again.claim("s")
    assert repeated is not None
    assert repeated.events[0].handed_out == 1
    row = (await writer.read(lambda connection: connection.execute(select(turns).order_by(turns.c.id)))).first()
    assert row is not None
    assert (row.id, row.outcome, row.ended_at) == (claim.turn_id, "crashed", clock.time())


async def test_a_message_shown_in_the_turn_is_not_delivered_again(writer: Writer, queue: EventQueue) -> None:
    await queue.put([comment(1, "a")])
    claim = await queue.claim("s")
    assert claim is not None
    await queue.put([direct_message(1, "now")])
    (message,) = await queue.waiting_posts()
    queue.note_handed_out([message.id], claim.turn_id, "notice")
    row = await one(writer, "mattermost:post:1")
    assert (row.state, row.via, row.turn_id, row.handed_out) == ("in_flight", "notice", claim.turn_id, 1)
    assert await queue.claim("s") is None
    queue.note_acknowledged([message.id])
    assert (await one(writer, "mattermost:post:1")).state == "sent"


async def test_a_message_whose_showing_was_not_proved_is_delivered_again(writer: Writer, queue: EventQueue) -> None:
    await queue.put([direct_message(1, "now")])
    (message,) = await queue.waiting_posts()
    queue.note_handed_out([message.id], 1, "notice")
    queue.note_returned([message.id])
    claim = await queue.claim("s")
    assert claim is not None
    assert claim.events[0].id == message.id
    queue.note_acknowledged([message.id])  # a late proof of the notice proves nothing of the turn
    assert (await one(writer, "mattermost:post:1")).state == "in_flight"


async def test_a_message_the_worker_read_by_itself_is_withdrawn(writer: Writer, queue: EventQueue) -> None:
    await queue.put([direct_message(1, "now")])
    (message,) = await queue.waiting_posts()
    queue.note_handed_out([message.id], 1, "read")
    row = await one(writer, "mattermost:post:1")
    assert (row.state, row.handed_out) == ("in_flight", 0)
    queue.note_acknowledged([message.id])
    assert (await one(writer, "mattermost:post:1")).state == "withdrawn"
    assert await queue.claim("s") is None


async def test_waiting_ends_with_a_new_event_or_when_one_is_due_again(queue: EventQueue, clock: ManualClock) -> None:
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await queue.put([comment(1, "a")])
    await asyncio.wait_for(waiting, 30)
    claim = await queue.claim("s")
    assert claim is not None
    await queue.fail([event.id for event in claim.events], "no")
    waiting = asyncio.create_task(queue.wait())
    await until(lambda: clock.sleeping > 0)
    assert not waiting.done()
    await clock.advance(5)
    await asyncio.wait_for(waiting, 30)


async def test_an_event_whose_source_is_cancelled_wakes_the_worker_all_the_same(
    writer: Writer, queue: EventQueue, clock: ManualClock
) -> None:
    waiting = asyncio.create_task(queue.wait())
    await writer.flush()
    putting = asyncio.create_task(queue.put([comment(1, "a")]))
    await clock.settle()
    putting.cancel()
    await writer.flush()
    assert set(await states(writer)) == {"gitea:comment:1"}
    await asyncio.wait_for(waiting, 30)


async def test_a_closed_writer_refuses(queue: EventQueue, writer: Writer) -> None:
    writer.close()
    with pytest.raises(DatabaseUnavailable):
        await queue.put([comment(1, "a")])


async def test_a_poll_reads_what_is_waiting_not_the_history(writer: Writer, queue: EventQueue) -> None:
    row = {
        "worker": ME, "source": "gitea", "kind": "comment", "priority": 3, "thread": "", "summary": "old", "body": "{}",
        "observed_at": 0.0, "queued_at": 0.0, "state": "sent", "attempts": 0, "handed_out": 1, "available_at": 0.0,
        "reason": "",
    }  # fmt: skip

    async def fill(connection: AsyncConnection) -> None:
        await connection.execute(insert(events), [row | {"dedupe_key": f"old:{number}"} for number in range(5000)])
        if connection.dialect.name != "sqlite":  # which keeps no statistics unless it is told to
            await connection.execute(text("ANALYZE TABLE events"))

    await writer.submit(fill)
    await queue.put([comment(1, "new")])
    polls: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.lstrip().startswith("SELECT") and "FROM events" in statement:
            polls.append((statement, parameters))

    event.listen(writer.engine.sync_engine, "before_cursor_execute", note)
    await queue.wait()
    assert await queue.claim("s") is not None
    await queue.depth()
    event.remove(writer.engine.sync_engine, "before_cursor_execute", note)
    assert len(polls) == 3
    for statement, parameters in polls:
        plan = await writer.read(partial(explain, statement=statement, parameters=parameters))
        # MariaDB answers a minimum from the index while it plans; with nothing waiting it says so.
        assert "ix_events_waiting" in plan or "optimized away" in plan or "min/max" in plan, (statement, plan)


async def explain(connection: AsyncConnection, statement: str, parameters: Any) -> str:
    how = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    rows = await connection.exec_driver_sql(how + statement, parameters)
    return " ".join(str(value) for row in rows for value in row)  # a row's own words are cut where they are long
