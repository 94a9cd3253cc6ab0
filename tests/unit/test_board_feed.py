"""The ring of recent entries."""

from __future__ import annotations

import asyncio

import pytest

from agensh.entries import Entry, EntryType
from board_service.stream import Feed


def entries(first: int, last: int, type_: EntryType = EntryType.FACT) -> list[Entry]:
    return [Entry(seq, "w", type_, "x", 0.0, 1.0) for seq in range(first, last + 1)]


def seqs(found: list[Entry] | None) -> list[int] | None:
    return None if found is None else [entry.seq for entry in found]


async def test_what_it_holds_and_where_it_ends() -> None:
    feed = Feed(entries(4, 6), 6, 3)
    assert (feed.floor, feed.head) == (3, 6)
    assert seqs(feed.after(3)) == [4, 5, 6]
    assert seqs(feed.after(4, 1)) == [5]
    assert seqs(feed.after(6)) == seqs(feed.after(99)) == []
    assert feed.after(2) is None


async def test_known_entries_are_left_out_and_a_gap_is_refused() -> None:
    feed = Feed(entries(1, 3), 3, 100)
    feed.extend(entries(2, 5))
    assert seqs(feed.after(0)) == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="gapless"):
        feed.extend(entries(7, 8))
    with pytest.raises(ValueError, match="gapless"):
        feed.extend([*entries(6, 6), *entries(8, 8)])
    assert feed.head == 5


async def test_it_stays_bounded() -> None:
    feed = Feed([], 0, 100)
    for seq in range(1, 1001):
        feed.extend(entries(seq, seq))
        assert feed.head - feed.floor <= 126
    assert feed.floor >= 874
    assert seqs(feed.after(998)) == [999, 1000]


async def test_waiting_ends_with_the_next_entry_a_close_or_the_time() -> None:
    feed = Feed([], 0, 10)
    waiting = asyncio.create_task(feed.wait(0, 30))
    await asyncio.sleep(0)
    feed.extend(entries(1, 1))
    assert await waiting
    assert not await feed.wait(1, 0.001)
    waiting = asyncio.create_task(feed.wait(1, 30))
    await asyncio.sleep(0)
    feed.close()
    assert await waiting
    assert feed.closed


async def test_claims_that_are_no_longer_active_are_marked() -> None:
    feed = Feed(entries(1, 3, EntryType.CLAIM), 3, 10)
    feed.keep_claims({2})
    assert [entry.active for entry in feed.after(0) or []] == [False, True, False]


async def test_releases_are_counted_and_wake_the_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("board_service.stream.RELEASES", 3)
    feed = Feed(entries(1, 9, EntryType.CLAIM), 9, 10)
    waiting = asyncio.create_task(feed.wait(9, 30))
    await asyncio.sleep(0)
    feed.release(entries(2, 3, EntryType.CLAIM))
    assert await waiting
    feed.release([])
    assert feed.released == 2
    assert [(claim.seq, claim.active) for claim in feed.releases_after(0) or []] == [(2, False), (3, False)]
    assert seqs(feed.releases_after(1)) == [3]
    assert seqs(feed.releases_after(2)) == []
    feed.release(entries(4, 5, EntryType.CLAIM))
    assert feed.releases_after(0) is None
    assert seqs(feed.releases_after(1)) == [3, 4, 5]
