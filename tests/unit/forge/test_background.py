"""Background work survives failures, endings are awaited, passwords are checked."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agensh.embedded.forge.auth import Passwords
from agensh.embedded.forge.state import Locks
from agensh.embedded.forge.tasks import Tasks, supervise


class NoWait:
    """A clock whose waits are one pass of the loop."""

    def time(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_a_loop_goes_on_after_a_failure_and_ends_by_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0
    third = asyncio.Event()

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("disk full")
        if runs == 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        third.set()
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ZeroDivisionError("a mistake")

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(supervise("test", loop, NoWait()))
        await asyncio.wait_for(third.wait(), 5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [record.message for record in caplog.records] == ["background work failed"] * 2
    assert "disk full" in caplog.text
    assert "a mistake" in caplog.text


async def test_endings_are_awaited_at_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    ended: list[int] = []

    async def end(number: int) -> None:
        await asyncio.sleep(0.01 * number)
        ended.append(number)
        if number == 2:
            tasks.spawn(end(3))
            raise OSError("late")

    tasks.spawn(end(1))
    tasks.spawn(end(2))
    with caplog.at_level(logging.ERROR):
        await tasks.drain()
    assert ended == [1, 2, 3]
    assert [record.__dict__["error"] for record in caplog.records] == ["late"]


async def test_locks_exclude_by_key_and_are_forgotten() -> None:
    locks = Locks()
    inside: list[str] = []

    async def work(key: str) -> None:
        async with locks.holding(key):
            assert key not in inside
            inside.append(key)
            await asyncio.sleep(0)
            inside.remove(key)

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(work(f"key{number % 3}"))
    assert locks._locks == {}


async def test_passwords() -> None:
    passwords = Passwords(1000)
    stored, other = await passwords.hash("right"), await passwords.hash("right")
    assert stored != other
    assert "right" not in stored
    for _ in range(2):  # the second time from memory
        assert await passwords.matches("right", stored)
        assert not await passwords.matches("wrong", stored)
    changed = await passwords.hash("new")
    assert not await passwords.matches("right", changed)
