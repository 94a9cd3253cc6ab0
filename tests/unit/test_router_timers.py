"""Reminders, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agensh.clock import RunClock, Timing
from agensh.db import sqlite_url
from router.events import Kind
from router.idle import Timers
from router.queue import EventQueue, RetryPolicy
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer
from tests.support.router_stage import comment, until

TIMING = Timing(budget=7200, idle=600, wind_down=2700, last_call=300)


class Heard(EventQueue):
    """A queue that remembers what was new, with its time."""

    heard: list[tuple[float, str]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def writer(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Writer]:
    async with open_writer(sqlite_url(tmp_path / "runtime.sqlite3"), clock) as writer:
        yield writer


def new_queue(writer: Writer, clock: ManualClock, t0: float) -> Heard:
    queue = Heard("demo-worker1", writer, clock, RetryPolicy())
    queue.heard = []
    queue.on_new = lambda new: queue.heard.extend((round(clock.time() - t0), str(event.kind)) for event in new)
    return queue


@asynccontextmanager
async def running(timers: Timers) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(timers.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def pass_time(clock: ManualClock, seconds: float, queue: Heard, heard: int) -> None:
    """Let time pass in steps, and let the database answer in between."""
    await until(lambda: clock.sleeping > 0)
    for _ in range(int(seconds // 60)):
        await clock.advance(60)
        await queue.depth()
        await asyncio.sleep(0.002)
    await until(lambda: len(queue.heard) >= heard, 5)


async def test_the_reminders_come_once_at_their_times_also_over_a_restart(writer: Writer, clock: ManualClock) -> None:
    t0 = clock.time()
    queue = new_queue(writer, clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.turn_started()
    async with running(timers):
        await pass_time(clock, 5400, queue, 1)
    assert queue.heard == [(4500, Kind.WIND_DOWN)]
    again = new_queue(writer, clock, t0)
    later = Timers(again, RunClock(t0, TIMING), clock, alone=False)
    later.turn_started()
    async with running(later) as task:
        await pass_time(clock, 1800, again, 1)
        await asyncio.wait_for(task, 5)
    assert again.heard == [(6900, Kind.LAST_CALL)]


async def test_a_reminder_is_left_out_when_the_next_one_is_due(writer: Writer, clock: ManualClock) -> None:
    t0 = clock.time() - 7000
    queue = new_queue(writer, clock, t0)
    async with running(Timers(queue, RunClock(t0, TIMING), clock, alone=False)) as task:
        await pass_time(clock, 240, queue, 1)
        await asyncio.wait_for(task, 5)
    assert [kind for _, kind in queue.heard] == [Kind.LAST_CALL]


async def test_an_idle_worker_is_prompted_once_for_each_time_it_is_idle(writer: Writer, clock: ManualClock) -> None:
    t0 = clock.time()
    queue = new_queue(writer, clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.now_idle(7)
    async with running(timers):
        await pass_time(clock, 1800, queue, 1)
        assert queue.heard == [(600, Kind.IDLE)]
        claim = await queue.claim("s")
        assert claim is not None
        timers.turn_started()
        await pass_time(clock, 1200, queue, 1)
        await queue.ack([event.id for event in claim.events])
        timers.now_idle(8)
        await pass_time(clock, 660, queue, 2)
    assert queue.heard == [(600, Kind.IDLE), (3600, Kind.IDLE)]


async def test_a_busy_worker_is_not_idle_and_waiting_events_keep_the_prompt_away(
    writer: Writer, clock: ManualClock
) -> None:
    t0 = clock.time()
    queue = new_queue(writer, clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.now_idle(1)
    async with running(timers):
        await pass_time(clock, 540, queue, 0)
        await queue.put([comment(1, "x")])
        claim = await queue.claim("s")
        assert claim is not None
        await queue.put_back([event.id for event in claim.events], wait=900)
        await pass_time(clock, 1200, queue, 1)
    assert [kind for _, kind in queue.heard] == [Kind.COMMENT]


@pytest.mark.parametrize(
    ("kinds", "published", "reminded"),
    [
        ({Kind.COMMENT}, False, True),
        ({Kind.COMMENT}, True, False),
        ({Kind.PUBLISH_REMINDER}, False, False),
        ({Kind.LAST_CALL}, False, False),
    ],
)
async def test_a_turn_without_an_entry_earns_one_reminder(
    writer: Writer, clock: ManualClock, kinds: set[Kind], published: bool, reminded: bool
) -> None:
    queue = new_queue(writer, clock, clock.time())
    timers = Timers(queue, RunClock(clock.time(), TIMING), clock, alone=False)
    for _ in range(2):
        await timers.turn_completed(3, frozenset(kinds), published=published)
    assert [kind for _, kind in queue.heard] == [Kind.PUBLISH_REMINDER] * reminded


async def test_a_single_worker_goes_on_after_every_stop_until_the_last_call(writer: Writer, clock: ManualClock) -> None:
    t0 = clock.time()
    queue = new_queue(writer, clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=True)
    for turn in (1, 1, 2):
        await timers.turn_completed(turn, frozenset({Kind.START}), published=True)
    claim = await queue.claim("s")
    assert claim is not None
    assert [event.body for event in claim.events] == [{"template": "continue_single.md"}] * 2
    await clock.advance(7000)
    await timers.turn_completed(3, frozenset({Kind.IDLE}), published=True)
    assert len(queue.heard) == 2
