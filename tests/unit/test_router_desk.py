"""What a worker is shown, once, over all ways of delivery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.entries import Entry, EntryType
from agensh.urls import sqlite_url
from router.desk import Desk
from router.events import Kind, NewEvent, QueuedEvent, Source
from router.feed import BoardFeed
from router.idle import control_event
from router.queue import EventQueue, RetryPolicy
from router.tables import events, notices
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer
from tests.support.router_stage import MemoryBoard, comment, direct_message

ME, PEER = "demo-worker1", "demo-worker2"
ROOM = 2000


@dataclass
class Bench:
    """A desk with a real queue, and a feed that is filled by hand."""

    clock: ManualClock
    writer: Writer
    feed: BoardFeed
    queue: EventQueue
    desk: Desk
    seq: int = 0

    def entry(self, type_: EntryType, content: str, worker: str = PEER, **fields: Any) -> Entry:
        self.seq += 1
        entry = Entry(self.seq, worker, type_, content, self.clock.time(), **fields)
        self.feed.add(entry)
        return entry

    async def put(self, *new: NewEvent) -> None:
        await self.queue.put(list(new))

    def shown(self, room: int = ROOM) -> tuple[str, ...]:
        notice = self.desk.collect(room)
        return () if notice is None else notice.refs

    def reborn(self) -> Bench:
        """The same worker in a new process; nothing of the old one's memory is left."""
        queue = EventQueue(ME, self.writer, self.clock, RetryPolicy())
        desk = Desk(ME, self.feed, queue, self.writer, self.clock)
        queue.on_new = desk.expect
        return Bench(self.clock, self.writer, self.feed, queue, desk, self.seq)

    async def state(self, key: str) -> str:
        await self.writer.flush()
        query = select(events.c.state).where(events.c.dedupe_key == key)
        return str(await self.writer.read(lambda connection: connection.scalar(query)))

    async def record(self) -> list[Any]:
        await self.writer.flush()
        query = select(notices).order_by(notices.c.id)
        return list((await self.writer.read(lambda connection: connection.execute(query))).all())


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock = ManualClock()
    async with open_writer(sqlite_url(tmp_path / "runtime.sqlite3"), clock) as writer:
        feed = BoardFeed(MemoryBoard(clock), clock)
        queue = EventQueue(ME, writer, clock, RetryPolicy())
        yield Bench(clock, writer, feed, queue, Desk(ME, feed, queue, writer, clock)).reborn()


async def test_nothing_pending_is_no_notice(bench: Bench) -> None:
    assert bench.desk.collect(ROOM) is None


async def test_an_entry_is_shown_exactly_once_over_ten_calls(bench: Bench) -> None:
    bench.entry(EntryType.FAIL, "tabs break it")
    seen: list[str] = []
    for _ in range(10):
        bench.desk.acknowledge()
        seen += bench.shown()
    assert seen == ["g1"]


async def test_own_expired_and_released_entries_are_never_shown(bench: Bench) -> None:
    bench.entry(EntryType.FACT, "mine", worker=ME)
    soon = bench.entry(EntryType.CLAIM, "expires", expires_at=bench.clock.time() + 60)
    released = bench.entry(EntryType.CLAIM, "released")
    bench.entry(EntryType.CLAIM, "stays", expires_at=bench.clock.time() + 3600)
    bench.feed.release(released.seq)
    await bench.clock.advance(61)
    assert soon.active
    assert bench.shown() == ("g4",)


async def test_direct_messages_come_first_then_entries_by_type(bench: Bench) -> None:
    bench.entry(EntryType.PATCH_SUMMARY, "files=a | idea=b | evidence=c")
    bench.entry(EntryType.OBSERVED, "o")
    bench.entry(EntryType.FACT, "fact")
    bench.entry(EntryType.CLAIM, "claim")
    bench.entry(EntryType.FAIL, "fail")
    await bench.put(direct_message(1, "hello"))
    assert bench.shown() == ("e1", "g5", "g4", "g3", "g2", "g1")


async def test_what_does_not_fit_is_counted_and_comes_with_the_next_result(bench: Bench) -> None:
    for number in range(30):
        bench.entry(EntryType.FACT, f"number {number} " + "x" * 80)
    notice = bench.desk.collect(500)
    assert notice is not None
    assert len(notice.text) <= 500
    assert f"{30 - len(notice.refs)} more" in notice.text
    seen = list(notice.refs)
    while True:
        bench.desk.acknowledge()
        more = bench.shown(500)
        if not more:
            break
        seen += more
    assert seen == [f"g{number}" for number in range(1, 31)]


async def test_a_notice_that_was_not_acknowledged_is_pending_again_after_a_crash(bench: Bench) -> None:
    bench.entry(EntryType.FAIL, "first")
    await bench.put(direct_message(1, "hello"))
    assert bench.shown() == ("e1", "g1")
    saved = bench.desk.unsaved()
    await bench.writer.flush()
    again = bench.reborn()
    await again.queue.recover()
    again.desk.restore(saved, await again.queue.waiting_posts())
    assert again.shown() == ("e1", "g1")
    again.desk.acknowledge()
    assert await again.state("mattermost:post:1") == "sent"
    last = again.reborn()
    await last.queue.recover()
    last.desk.restore(again.desk.unsaved(), await last.queue.waiting_posts())
    assert last.shown() == ()
    assert [(row.ref, row.acked_at is None) for row in await last.record()] == [
        ("g1", True), ("e1", True), ("g1", False), ("e1", False),
    ]  # fmt: skip


async def test_entries_shown_out_of_order_are_remembered_over_a_restart(bench: Bench) -> None:
    for number in range(20):
        bench.entry(EntryType.OBSERVED, f"number {number} " + "x" * 80)
    bench.entry(EntryType.FAIL, "urgent")
    first = bench.shown(300)
    assert first[0] == "g21"
    bench.desk.acknowledge()
    again = bench.reborn()
    again.desk.restore(bench.desk.unsaved(), [])
    rest = again.shown(10_000)
    assert set(rest) == {f"g{number}" for number in range(1, 22)} - set(first)
    again.desk.acknowledge()
    assert again.shown() == ()
    assert again.desk.unsaved() == '{"seq": 21, "seen": []}'
    assert again.desk.unsaved() is None


async def test_a_turn_does_not_repeat_what_was_shown_in_the_one_before(bench: Bench) -> None:
    bench.entry(EntryType.FACT, "one")
    await bench.put(comment(1, "go"))
    claim = await bench.queue.claim("s")
    assert claim is not None
    context = bench.desk.open_turn(claim.turn_id, claim.events, room=1000, length=lambda entry: 50)
    assert [entry.seq for entry in context.entries] == [1]
    bench.desk.acknowledge()
    bench.entry(EntryType.FAIL, "two")
    await bench.put(direct_message(1, "hello"))
    assert bench.shown() == ("e2", "g2")
    bench.desk.close_turn(delivered=True)
    await bench.put(comment(2, "again"))
    claim = await bench.queue.claim("s")
    assert claim is not None
    assert [event.summary for event in claim.events] == ["again"]
    context = bench.desk.open_turn(claim.turn_id, claim.events, room=1000, length=lambda entry: 50)
    assert (context.entries, context.left_out, context.after) == ((), 0, 2)
    assert [(row.ref, row.via) for row in await bench.record()] == [("g1", "turn"), ("g2", "mcp"), ("e2", "mcp")]


async def test_a_failed_turn_makes_what_it_showed_pending_again(bench: Bench) -> None:
    bench.entry(EntryType.FACT, "one")
    bench.desk.open_turn(1, [], room=1000, length=lambda entry: 50)
    await bench.put(direct_message(1, "hello"))
    assert bench.shown() == ("e1",)
    bench.desk.close_turn(delivered=False)
    assert await bench.state("mattermost:post:1") == "queued"
    assert bench.shown() == ("e1", "g1")


async def test_a_context_prefers_the_urgent_and_the_new_and_passes_over_the_rest(bench: Bench) -> None:
    for number in range(10):
        bench.entry(EntryType.OBSERVED, f"number {number}")
    bench.entry(EntryType.FAIL, "fail")
    context = bench.desk.open_turn(1, [], room=150, length=lambda entry: 50)
    assert [entry.seq for entry in context.entries] == [9, 10, 11]
    assert (context.left_out, context.after) == (8, 0)
    bench.desk.close_turn(delivered=True)
    assert bench.shown() == ()


async def test_what_fell_out_of_the_ring_is_counted(bench: Bench) -> None:
    small = BoardFeed(MemoryBoard(bench.clock), bench.clock, capacity=100)
    for seq in range(1, 251):
        small.add(Entry(seq, PEER, EntryType.FACT, "x", bench.clock.time()))
    desk = Desk(ME, small, bench.queue, bench.writer, bench.clock)
    context = desk.open_turn(1, [], room=100, length=lambda entry: 50)
    assert len(context.entries) + context.left_out == 250
    desk.close_turn(delivered=True)
    assert desk.collect(ROOM) is None
    assert desk.oldest_unseen() is None


async def test_messages_the_worker_read_by_itself_are_withdrawn_once_that_is_proved(bench: Bench) -> None:
    await bench.put(direct_message(1, "old"), direct_message(2, "later"))
    bench.desk.worker_read({"p1", "p7"})
    assert bench.shown() == ("e2",)
    assert await bench.state("mattermost:post:1") == "in_flight"
    bench.desk.acknowledge()
    assert await bench.state("mattermost:post:1") == "withdrawn"
    assert await bench.state("mattermost:post:2") == "sent"


async def test_a_reading_whose_result_was_lost_withdraws_nothing(bench: Bench) -> None:
    await bench.put(direct_message(1, "old"))
    bench.desk.worker_read({"p1"})
    assert bench.shown() == ()
    bench.desk.close_turn(delivered=False)
    assert bench.shown() == ("e1",)


async def test_a_reading_whose_connection_broke_withdraws_nothing(bench: Bench) -> None:
    broken: list[bool] = []
    await bench.put(direct_message(1, "old"))
    bench.desk.worker_read({"p1"}, lambda: not broken)
    broken.append(True)
    bench.desk.acknowledge()
    assert bench.shown() == ("e1",)


async def test_a_reading_of_the_channel_withdraws_posts_but_no_direct_messages(bench: Bench) -> None:
    body = {"post_id": "p9"}
    channel = NewEvent(Source.MATTERMOST, Kind.CHANNEL_POST, "mattermost:post:9", "hi all", 0.0, body=body)
    await bench.put(channel, direct_message(1, "hello"))
    bench.desk.worker_read({"p9"})
    bench.desk.acknowledge()
    assert await bench.state("mattermost:post:9") == "withdrawn"
    assert await bench.state("mattermost:post:1") == "queued"


async def test_the_oldest_unseen_is_known(bench: Bench) -> None:
    assert bench.desk.oldest_unseen() is None
    bench.entry(EntryType.FACT, "x")
    posted = bench.clock.time()
    await bench.clock.advance(30)
    bench.entry(EntryType.FACT, "y")
    assert bench.desk.oldest_unseen() == posted


def reminder(kind: Kind, at: float) -> NewEvent:
    return control_event(kind, str(kind), at, text="22 s are left: wind down.")


async def test_a_reminder_of_the_clock_comes_before_everything_and_once(bench: Bench) -> None:
    bench.entry(EntryType.FAIL, "tabs break the parser")
    await bench.put(direct_message(1, "hello"), reminder(Kind.WIND_DOWN, bench.clock.time()))
    notice = bench.desk.collect(ROOM)
    assert notice is not None
    lines = notice.text.strip().splitlines()
    assert lines[1] == "[agensh/REMINDER +0.0m] 22 s are left: wind down."
    assert "/DM " in lines[2]
    assert "/FAIL " in lines[3]
    bench.desk.acknowledge()
    assert bench.shown() == ()
    assert await bench.state("control:wind_down") == "sent"
    assert {row.kind for row in await bench.record()} == {"entry", "reminder", "direct_message"}


async def test_other_control_events_wait_for_the_next_turn(bench: Bench) -> None:
    await bench.put(control_event(Kind.IDLE, "idle:1", bench.clock.time()))
    assert bench.shown() == ()


async def test_reading_the_channel_does_not_withdraw_a_reminder(bench: Bench) -> None:
    await bench.put(reminder(Kind.LAST_CALL, bench.clock.time()))
    bench.desk.worker_read({"p1"})
    assert len(bench.shown()) == 1


async def test_a_reminder_that_was_not_acknowledged_is_pending_again_after_a_crash(bench: Bench) -> None:
    await bench.put(reminder(Kind.LAST_CALL, bench.clock.time()))
    assert len(bench.shown()) == 1
    again = bench.reborn()
    await again.queue.recover()
    again.desk.restore(None, await again.queue.waiting_posts())
    assert len(again.shown()) == 1


async def test_a_message_shown_between_a_claim_and_its_turn_is_not_told_again(bench: Bench) -> None:
    await bench.put(direct_message(1, "early", author=PEER, at=1.0), comment(2, "of the forge"))
    claim = await bench.queue.claim("s")  # on its way to the database while a call between two turns comes
    assert claim is not None
    message, other = claim.events
    assert bench.desk.untold(claim.events) == (message, other)
    assert bench.shown() == (message.ref,)
    assert bench.desk.untold(claim.events) == (other,)
    bench.desk.open_turn(claim.turn_id, (other,), room=ROOM, length=lambda _entry: 1)
    assert bench.shown() == ()


async def test_a_message_read_between_a_claim_and_its_turn_is_not_told_again(bench: Bench) -> None:
    await bench.put(direct_message(1, "early", author=PEER), comment(2, "of the forge"))
    claim = await bench.queue.claim("s")
    assert claim is not None
    _, other = claim.events
    bench.desk.worker_read({"p1"})
    assert bench.desk.untold(claim.events) == (other,)


async def test_a_message_that_is_claimed_as_it_comes_is_not_told_again(bench: Bench) -> None:
    await bench.put(comment(1, "of the forge"))
    gathered = asyncio.Event()

    async def holds_the_next_batch_up(_connection: AsyncConnection) -> None:
        await gathered.wait()

    async def turn() -> tuple[QueuedEvent, ...]:
        claim = await bench.queue.claim("s")
        assert claim is not None
        bench.desk.open_turn(claim.turn_id, claim.events, room=ROOM, length=lambda _entry: 1)
        return claim.events

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.writer.submit(holds_the_next_batch_up))
        claimed = group.create_task(turn())
        group.create_task(bench.put(direct_message(2, "hello")))
        group.create_task(_set(gathered))
    assert [event.kind for event in claimed.result()] == [Kind.DIRECT_MESSAGE, Kind.COMMENT]
    assert bench.shown() == ()


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_a_thousand_waiting_entries_are_counted_and_a_dozen_worded(bench: Bench) -> None:
    for number in range(1000):
        bench.entry(EntryType.FACT, f"entry {number} of many")
    notice = bench.desk.collect(600)
    assert notice is not None
    assert len(notice.text) <= 600
    assert notice.text.endswith(f"{1000 - len(notice.refs)} more: call board_pending")


async def test_a_claim_that_was_released_before_it_was_shown_is_not_shown(bench: Bench) -> None:
    bench.entry(EntryType.CLAIM, "wc")
    bench.entry(EntryType.CLAIM, "sort")
    bench.feed.release(1)
    assert bench.shown() == ("g2",)
    bench.desk.acknowledge()
    assert bench.shown() == ()


async def test_what_was_lost_on_its_way_is_shown_again_and_the_rest_is_not(bench: Bench) -> None:
    lost: list[bool] = []
    bench.entry(EntryType.FAIL, "one")
    await bench.put(direct_message(1, "hello"))
    first = bench.desk.collect(ROOM, arrived=lambda: not lost)
    assert first is not None
    assert first.refs == ("e1", "g1")
    bench.entry(EntryType.FAIL, "two")
    second = bench.desk.collect(ROOM, arrived=lambda: True)
    assert second is not None
    assert second.refs == ("g2",)
    lost.append(True)
    bench.desk.acknowledge()
    assert await bench.state("mattermost:post:1") == "queued"
    assert bench.shown() == ("e1", "g1")
    bench.desk.acknowledge()
    assert await bench.state("mattermost:post:1") == "sent"
    assert bench.shown() == ()
