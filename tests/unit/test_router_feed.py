"""The ring of recent entries and the stream that fills it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from router.feed import BoardFeed
from tests.support.router_stage import MemoryBoard, until


@pytest.fixture
def board() -> MemoryBoard:
    return MemoryBoard(SystemClock())


@asynccontextmanager
async def running(feed: BoardFeed) -> AsyncIterator[None]:
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def entry(seq: int, type_: EntryType = EntryType.FACT) -> Entry:
    return Entry(seq, "demo-worker2", type_, f"number {seq}", 0.0)


def reached(feed: BoardFeed, seq: int) -> bool:
    return feed.head == seq


def opened(board: MemoryBoard, streams: int) -> bool:
    return board.streams == streams


async def test_the_ring_holds_what_was_there_and_what_comes(board: MemoryBoard) -> None:
    board.write("demo-worker1", EntryType.FACT, "before")
    feed = BoardFeed(board, SystemClock())
    async with running(feed):
        await until(lambda: feed.head == 1)
        board.write("demo-worker1", EntryType.FAIL, "after")
        await until(lambda: feed.head == 2)
    assert [item.content for item in feed.after(0)] == ["before", "after"]
    assert [item.content for item in feed.after(1)] == ["after"]


async def test_a_cut_stream_resumes_with_no_gap_and_no_repetition(board: MemoryBoard) -> None:
    feed = BoardFeed(board, SystemClock())
    async with running(feed):
        for seq in range(1, 4):
            board.write("demo-worker1", EntryType.FACT, f"number {seq}")
            await until(partial(reached, feed, seq))
            streams = board.streams
            board.cut()
            if seq == 3:
                board.write("demo-worker1", EntryType.FACT, "while it was away")
            await until(partial(opened, board, streams + 1))
        await until(lambda: feed.head == 4)
    assert [item.seq for item in feed.after(0)] == [1, 2, 3, 4]


async def test_a_board_that_is_away_at_first_is_waited_for(board: MemoryBoard) -> None:
    class Late(MemoryBoard):
        tries = 0

        async def read(self, **_: object) -> list[Entry]:
            self.tries += 1
            if self.tries < 2:
                raise ValueError("no JSON")
            return self.entries

    late = Late(SystemClock())
    late.write("demo-worker1", EntryType.FACT, "x")
    feed = BoardFeed(late, SystemClock())
    async with running(feed):
        await until(lambda: feed.head == 1)


async def test_one_stream_serves_all_desks(board: MemoryBoard) -> None:
    feed = BoardFeed(board, SystemClock())
    async with running(feed):
        for _ in range(50):
            board.write("demo-worker1", EntryType.FACT, "x")
        await until(lambda: feed.head == 50)
    assert board.streams == 1


def test_the_ring_is_bounded_and_says_what_fell_out() -> None:
    feed = BoardFeed(MemoryBoard(SystemClock()), SystemClock(), capacity=100)
    for seq in range(1, 1001):
        feed.add(entry(seq))
    held = feed.after(0)
    assert len(held) <= 100
    assert held[-1].seq == 1000
    assert held[0].seq == feed.lost_through + 1
    feed.add(entry(3))
    assert feed.after(0)[0].seq == feed.lost_through + 1


def test_an_entry_that_comes_again_replaces_the_first() -> None:
    feed = BoardFeed(MemoryBoard(SystemClock()), SystemClock())
    for seq in (1, 2, 3):
        feed.add(entry(seq, EntryType.CLAIM))
    feed.release(2)
    feed.release(9)
    assert [item.active for item in feed.after(0)] == [True, False, True]
    feed.add(entry(2, EntryType.CLAIM))
    assert [item.seq for item in feed.after(0)] == [1, 2, 3]
    assert feed.after(1)[0].active


def test_a_late_entry_finds_its_place() -> None:
    feed = BoardFeed(MemoryBoard(SystemClock()), SystemClock())
    for seq in (1, 3, 2):
        feed.add(entry(seq))
    assert [item.seq for item in feed.after(0)] == [1, 2, 3]
    assert feed.head == 3


async def test_what_was_released_is_no_claim_any_more_also_when_the_stream_was_away(board: MemoryBoard) -> None:
    for content in ("wc", "sort", "head"):
        board.write("demo-worker1", EntryType.CLAIM, content)
    feed = BoardFeed(board, SystemClock())

    def standing() -> list[str]:
        return [item.content for item in feed.after(0) if item.active]

    async with running(feed):
        await until(lambda: feed.connected and len(standing()) == 3)
        board.release(1)
        await until(lambda: standing() == ["sort", "head"])
        streams = board.streams
        board.cut()
        board.release(2, told=False)
        await until(partial(opened, board, streams + 1))
        await until(lambda: standing() == ["head"])
    assert feed.head == 3


async def test_a_quiet_board_is_connected_once_it_answers(board: MemoryBoard) -> None:
    feed = BoardFeed(board, SystemClock())
    async with running(feed):
        await until(lambda: feed.connected)
    assert feed.head == 0


async def test_a_full_listing_of_claims_says_nothing_of_older_ones(
    board: MemoryBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.feed.FIRST_READ", 2)
    feed = BoardFeed(board, SystemClock())
    for seq in (1, 2, 3):
        board.write("demo-worker1", EntryType.CLAIM, f"number {seq}")
        feed.add(entry(seq, EntryType.CLAIM))
    async with running(feed):
        await until(lambda: feed.connected)
        board.release(3)
        await until(lambda: not feed.after(2)[0].active)
    assert [item.active for item in feed.after(0)] == [True, True, False]
