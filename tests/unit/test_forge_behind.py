"""What could not be written when it happened is written later, in its order, and nothing else is held up by it."""

from __future__ import annotations

import asyncio
import errno
import sqlite3

import pytest

from agensh.embedded.forge.behind import PAUSE, Behind
from agensh.embedded.forge.git import GitError
from tests.support.clock import ManualClock


class Store:
    """Writes what it is given, or takes nothing."""

    def __init__(self) -> None:
        self.full = False
        self.no_room: Exception | None = None
        self.written: list[str] = []

    async def write(self, what: str) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        if self.no_room is not None:
            raise self.no_room
        if what == "odd":
            raise ValueError("odd")
        self.written.append(what)


async def test_what_the_store_did_not_take_follows_in_its_order() -> None:
    clock, store, told = ManualClock(), Store(), list[Exception]()
    behind = Behind(clock, told.append)
    task = asyncio.create_task(behind.run())
    try:
        assert await behind.now_or_later(lambda: store.write("first"))
        store.full = True
        assert not await behind.now_or_later(lambda: store.write("second"))
        assert not await behind.now_or_later(lambda: store.write("third"))
        await clock.advance(PAUSE)
        assert store.written == ["first"]
        store.full = False
        await clock.advance(PAUSE)
        assert store.written == ["first", "second", "third"]
        assert await behind.now_or_later(lambda: store.write("fourth"))
        assert store.written[-1] == "fourth"
        assert told == [], "the store has said it"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_fails_by_itself_is_told_and_holds_nobody_up() -> None:
    clock, store, told = ManualClock(), Store(), list[Exception]()
    behind = Behind(clock, told.append)
    store.full = True
    assert not await behind.now_or_later(lambda: store.write("odd"))
    assert not await behind.now_or_later(lambda: store.write("next"))
    store.full = False
    with pytest.raises(ValueError, match="odd"):
        await behind.run()
    task = asyncio.create_task(behind.run())  # as `supervise` does
    try:
        await clock.settle()
        assert store.written == ["next"]
        with pytest.raises(ValueError, match="odd"):
            await behind.now_or_later(lambda: store.write("odd"))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), GitError("update-ref", 128, "Disk quota exceeded")]
)
async def test_a_full_disk_that_the_store_did_not_meet_is_told_and_waited_for(error: Exception) -> None:
    clock, store, told = ManualClock(), Store(), list[Exception]()
    behind = Behind(clock, told.append)
    task = asyncio.create_task(behind.run())
    try:
        store.no_room = error
        assert not await behind.now_or_later(lambda: store.write("first"))
        assert told == [error]
        store.no_room = None
        # There is room again, but what happened first is written first.
        assert not await behind.now_or_later(lambda: store.write("second"))
        await clock.advance(PAUSE)
        assert store.written == ["first", "second"]
        store.no_room = GitError("update-ref", 128, "fatal: bad object")
        with pytest.raises(GitError, match="bad object"):
            await behind.now_or_later(lambda: store.write("third"))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("code", "text", "no_room"),
    [
        (128, "fatal: write error: No space left on device", True),
        (128, "error: unable to write file: Disk quota exceeded", True),
        (-25, "", True),
        (128, "fatal: bad object", False),
        (-9, "", False),
    ],
)
def test_git_that_found_no_room_is_known_by_its_words(code: int, text: str, no_room: bool) -> None:
    assert GitError("commit-tree", code, text).no_room is no_room
