"""The posts of the task channel: kept once for the run, and what each worker has not been told of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select

from agensh.clients.mattermost import Post
from agensh.db import DatabaseUnavailable
from router.claim import POST_LINES
from router.events import Kind, NewEvent, Priority, QueuedEvent, Source
from router.posts import FIRST_READING, OVERLAP_MS, SETTLED_MS, PostFeed
from router.queue import EventQueue, RetryPolicy
from router.tables import events, posts, runs, turns
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer

ME, PEER = "demo-worker1", "demo-worker2"
CHANNEL = "c1"
NAMES = {"u1": ME, "u2": PEER}
STEADY = RetryPolicy(jitter=0.0, attempts=3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Host:
    """What one node host has of the channel, with the queue of one of its workers."""

    def __init__(self, writer: Writer, clock: ManualClock, worker: str = ME, capacity: int = 100) -> None:
        self.writer = writer
        self.feed = PostFeed(writer, clock, CHANNEL, capacity=capacity)
        self.queue = EventQueue(worker, writer, clock, STEADY, posts=self.feed)
        assert self.queue.posts is not None
        self.box = self.queue.posts

    async def begin(self, saved: str | None = None) -> None:
        await self.feed.load()
        self.box.restore(saved)

    async def take(self, *numbers: int, author: str = "u2") -> None:
        await self.feed.take([post(number, author=author) for number in numbers], NAMES)

    async def told(self) -> list[int]:
        """Claim a turn, end it well, and return the posts that it had."""
        claim = await self.queue.claim("s")
        if claim is None:
            return []
        await self.queue.ack([event.id for event in claim.events])
        return seqs(claim.events)


def post(number: int, *, author: str = "u2", message: str = "", kind: str = "", at: int = 0) -> Post:
    return Post(f"p{number}", CHANNEL, author, message or f"number {number}", "", at or 1000 * number, kind, "")


def seqs(found: tuple[QueuedEvent, ...] | list[QueuedEvent]) -> list[int]:
    return [-event.id for event in found]


@pytest.fixture
async def host(runtime_database: tuple[str, str], clock: ManualClock) -> AsyncIterator[Host]:
    async with hosts(runtime_database, clock, 1) as [host]:
        yield host


class hosts:
    """So many hosts on one database, each with a writer of its own."""

    def __init__(self, runtime_database: tuple[str, str], clock: ManualClock, count: int, capacity: int = 100) -> None:
        self._arguments = (runtime_database, clock, count, capacity)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> list[Host]:
        (url, isolation), clock, count, capacity = self._arguments
        found = []
        for _ in range(count):
            writer = await self._stack.enter_async_context(open_writer(url, clock, isolation=isolation))
            found.append(Host(writer, clock, capacity=capacity))
        row = insert(runs).values(run_id="r", t0=0.0, state="running")
        await found[0].writer.submit(lambda connection: connection.execute(row))
        for each in found:
            await each.begin()
        return found

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()


async def stored(writer: Writer) -> list[tuple[int, str]]:
    query = select(posts.c.seq, posts.c.post_id).order_by(posts.c.seq)
    return [tuple(row) for row in await writer.read(lambda connection: connection.execute(query))]


async def test_a_post_is_one_row_and_an_event_of_everybody_but_its_author(host: Host, clock: ManualClock) -> None:
    peer = EventQueue(PEER, host.writer, clock, STEADY, posts=host.feed)
    assert peer.posts is not None
    peer.posts.restore(None)
    await host.feed.take([post(1), post(2, author="u1", message=f"to @{PEER}"), post(3, kind="system_join")], NAMES)
    assert await stored(host.writer) == [(1, "p1"), (2, "p2")]
    mine, hers = await host.queue.claim("s"), await peer.claim("s")
    assert mine is not None
    assert hers is not None
    [event] = mine.events
    assert (event.ref, event.kind, event.summary) == (
        "p1", Kind.CHANNEL_POST, f"{PEER} wrote in the task channel: number 1",
    )  # fmt: skip
    assert (event.thread, event.observed_at, event.body["post_id"]) == (f"mattermost:{CHANNEL}", 1.0, "p1")
    [event] = hers.events
    assert (event.ref, event.kind, event.summary) == (
        "p2", Kind.MENTION, f"{ME} mentioned you in the task channel: to @{PEER}",
    )  # fmt: skip
    rows = await host.writer.read(lambda connection: connection.execute(select(turns.c.worker, turns.c.events)))
    assert sorted(map(tuple, rows)) == [(ME, 1), (PEER, 1)]
    assert not (await host.writer.read(lambda connection: connection.execute(select(events.c.id)))).all()


async def test_many_listeners_that_bring_the_same_posts_write_them_once(host: Host) -> None:
    await asyncio.gather(*(host.take(*range(1, 6)) for _ in range(50)))
    assert await stored(host.writer) == [(number, f"p{number}") for number in range(1, 6)]
    assert host.feed.knows("p5")
    assert await host.told() == [1, 2, 3, 4, 5]
    assert await host.told() == []


async def test_two_hosts_that_bring_posts_at_once_have_all_of_them_in_one_order(
    runtime_database: tuple[str, str], clock: ManualClock
) -> None:
    async with hosts(runtime_database, clock, 2) as both:
        shuffled = random.Random(1)
        batches = [list(range(start, start + 4)) for start in range(1, 81, 4)]

        async def bring(host: Host) -> list[int]:
            told: list[int] = []
            for batch in shuffled.sample(batches, len(batches)):
                await host.take(*batch)
                told += await host.told()
            return told

        told = await asyncio.gather(*map(bring, both))
        rows = await stored(both[0].writer)
        assert [seq for seq, _ in rows] == list(range(1, 81))
        assert sorted(post_id for _, post_id in rows) == sorted(f"p{number}" for number in range(1, 81))
        for host, seen in zip(both, told, strict=True):
            assert host.feed.head == 80
            assert [(post.seq, post.post_id) for post in host.feed.after(0)] == rows
            # Each was told once, and none was passed over, whichever host was first with it.
            assert sorted(seen) == list(range(1, 81))


async def test_a_position_survives_a_restart_and_what_was_not_proved_is_told_again(
    host: Host, clock: ManualClock
) -> None:
    await host.take(1, 2)
    assert await host.told() == [1, 2]
    await host.take(3)
    claim = await host.queue.claim("s")
    assert claim is not None
    saved = host.box.unsaved()
    assert saved is not None
    assert host.box.unsaved() is None
    await host.take(4)
    again = Host(host.writer, clock)
    await again.begin(saved)
    assert again.feed.head == 4
    assert await again.told() == [3, 4]


async def test_a_failed_delivery_waits_and_is_given_up_in_the_end(host: Host, clock: ManualClock) -> None:
    await host.take(1)
    for _ in range(STEADY.attempts - 1):
        claim = await host.queue.claim("s")
        assert claim is not None
        await host.queue.fail([event.id for event in claim.events], "no")
        assert await host.queue.claim("s") is None
        waiting = asyncio.create_task(host.queue.wait())
        await clock.advance(4.0)
        assert not waiting.done()
        await clock.advance(60.0)
        await asyncio.wait_for(waiting, 20)
    claim = await host.queue.claim("s")
    assert claim is not None
    await host.queue.fail([event.id for event in claim.events], "no")
    await clock.advance(600.0)
    assert await host.told() == []


async def test_what_is_put_back_comes_again_and_a_success_in_between_forgives(host: Host) -> None:
    await host.take(1)
    claim = await host.queue.claim("s")
    assert claim is not None
    assert await host.queue.claim("s") is None
    await host.queue.put_back([event.id for event in claim.events])
    await host.take(2)
    assert await host.told() == [1, 2]


async def test_what_the_worker_read_is_not_told(host: Host) -> None:
    await host.take(1, 2, 3)
    host.queue.note_handed_out([-2, -3], None, "read")
    assert seqs(host.box.waiting()) == [1]
    host.queue.note_returned([-3])
    host.queue.note_acknowledged([-2])
    assert await host.told() == [1, 3]
    assert host.box.unsaved() == '{"seq": 3, "done": []}'


async def test_an_idle_worker_wakes(host: Host) -> None:
    waiting = asyncio.create_task(host.queue.wait())
    await host.take(1, author="u1")
    assert not waiting.done()
    await host.take(2)
    await asyncio.wait_for(waiting, 20)
    depth = await host.queue.depth()
    assert (depth.waiting, depth.oldest_at) == (1, 2.0)
    assert await host.told() == [2]


async def test_what_fell_out_of_the_ring_comes_from_the_database(
    runtime_database: tuple[str, str], clock: ManualClock
) -> None:
    async with hosts(runtime_database, clock, 1, capacity=10) as [host]:
        for number in range(1, 41):
            await host.take(number)
        assert len(host.feed.after(0)) <= 10
        assert await host.told() == list(range(1, 41))
        await host.take(41)
        assert await host.told() == [41]
        again = Host(host.writer, clock, capacity=10)
        await again.begin('{"seq": 5, "done": [7]}')
        assert await again.told() == [6, *range(8, 42)]


async def test_a_worker_that_is_new_is_told_the_newest(host: Host, clock: ManualClock) -> None:
    await host.take(*range(1, 81))
    new = Host(host.writer, clock, worker="demo-worker9")
    await new.begin()
    assert await new.told() == list(range(81 - FIRST_READING, 81))


async def test_the_anchor_is_older_than_what_may_still_become_visible(host: Host, clock: ManualClock) -> None:
    now = int(clock.time() * 1000)
    assert host.feed.anchor(clock.time()) == ""
    times = [now - SETTLED_MS - 5000, now - SETTLED_MS, now - OVERLAP_MS, now - 1]
    await host.feed.take([replace(post(n), create_at=at) for n, at in enumerate(times, start=1)], NAMES)
    assert host.feed.newest_at() == now - 1
    assert host.feed.anchor(clock.time()) == "p2"
    await host.feed.take([post(5, kind="system_join", at=now + 1)], NAMES)
    assert host.feed.anchor(clock.time()) == "p3", "10 s older than the newest, which is the system's"
    await clock.advance(SETTLED_MS / 1000 + 1)
    assert host.feed.anchor(clock.time()) == "p5", "nothing older can come any more"


def test_a_channel_of_many_posts_has_a_short_line() -> None:
    from router.prompt import event_lines

    def event(seq: int) -> Any:
        return QueuedEvent(-seq, "mattermost", Kind.CHANNEL_POST, 3, "t", f"s{seq}", {}, 0.0, 0, 0)  # type: ignore[arg-type]

    [line] = event_lines([event(seq) for seq in range(30, 0, -1)])
    assert line.startswith("[event] event_id=p1..p30 source=mattermost kind=channel_post ")
    assert line.endswith("count=30 summary: s28 | s29 | s30 (+27 earlier in this thread)")


async def test_a_turn_takes_a_bounded_number_of_threads_and_the_rest_comes_with_the_next(host: Host) -> None:
    threads = POST_LINES + 10
    said = [replace(post(number), root_id=f"r{number % threads}") for number in range(1, 2 * threads + 1)]
    said.append(replace(post(2 * threads + 1, message=f"@{ME} look"), root_id="r7"))
    await host.feed.take(said, NAMES)
    told: list[QueuedEvent] = []
    left: list[int] = []
    while (claim := await host.queue.claim("s")) is not None:
        assert len({(event.thread, event.kind) for event in claim.events}) <= POST_LINES
        told += claim.events
        left.append(claim.posts_left)
        await host.queue.ack([event.id for event in claim.events])
    assert left == [22, 0]
    assert told[POST_LINES * 2 - 2].kind is Kind.MENTION, "it is not left for later"
    assert sorted(seqs(told)) == list(range(1, 2 * threads + 2))
    assert host.box.unsaved() == f'{{"seq": {2 * threads + 1}, "done": []}}'


async def test_a_failed_delivery_counts_once_however_often_the_database_is_asked(host: Host) -> None:
    await host.take(1)
    direct = NewEvent(Source.MATTERMOST, Kind.DIRECT_MESSAGE, "d1", "hello", 0.0, priority=Priority.DIRECT)
    await host.queue.put([direct])
    claim = await host.queue.claim("s")
    assert claim is not None
    assert len(claim.events) == 2
    host.writer.close()
    for _ in range(STEADY.attempts + 1):
        with pytest.raises(DatabaseUnavailable):
            await host.queue.fail([event.id for event in claim.events], "no")
    assert [event.id for event in host.box.waiting()] == []
    assert host.box.depth()[0] == 1, "it is still on its way and not given up"
