"""Reminders, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from agensh.clock import RunClock, Timing
from router.events import Kind, NewEvent
from router.idle import Timers
from router.queue import Depth
from tests.support.clock import ManualClock
from tests.support.router_stage import comment

TIMING = Timing(budget=7200, idle=600, wind_down=2700, last_call=300)


class MemoryQueue:
    """A queue that remembers what was new, with its time."""

    def __init__(self, clock: ManualClock, t0: float, known: Sequence[str] = ()) -> None:
        self._clock = clock
        self._t0 = t0
        self.known = set(known)
        self.heard: list[tuple[float, str]] = []
        self.bodies: list[dict[str, object]] = []
        self.waiting = 0

    async def put(self, new: Sequence[NewEvent]) -> int:
        fresh = [event for event in new if event.dedupe_key not in self.known]
        for event in fresh:
            self.known.add(event.dedupe_key)
            self.heard.append((self._clock.time() - self._t0, str(event.kind)))
            self.bodies.append(event.body)
        self.waiting += len(fresh)
        return len(fresh)

    async def depth(self) -> Depth:
        return Depth(self.waiting, None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def running(timers: Timers) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(timers.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_reminders_come_once_at_their_times_also_over_a_restart(clock: ManualClock) -> None:
    t0 = clock.time()
    queue = MemoryQueue(clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.turn_started()
    async with running(timers):
        await clock.advance(4499)
        assert queue.heard == []
        await clock.advance(901)
    assert queue.heard == [(4500, Kind.WIND_DOWN)]
    again = MemoryQueue(clock, t0, known=sorted(queue.known))
    later = Timers(again, RunClock(t0, TIMING), clock, alone=False)
    later.turn_started()
    async with running(later) as task:
        await clock.advance(1800)
        assert task.done()
    assert again.heard == [(6900, Kind.LAST_CALL)]


async def test_a_reminder_is_left_out_when_the_next_one_is_due(clock: ManualClock) -> None:
    t0 = clock.time() - 7000
    queue = MemoryQueue(clock, t0)
    async with running(Timers(queue, RunClock(t0, TIMING), clock, alone=False)):
        await clock.advance(240)
    assert queue.heard == [(7000, Kind.LAST_CALL)]


async def test_an_idle_worker_is_prompted_once_for_each_time_it_is_idle(clock: ManualClock) -> None:
    t0 = clock.time()
    queue = MemoryQueue(clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.now_idle(7)
    async with running(timers):
        await clock.advance(1800)
        assert queue.heard == [(600, Kind.IDLE)]
        timers.turn_started()
        queue.waiting = 0
        await clock.advance(1200)
        timers.now_idle(8)
        await clock.advance(660)
    assert queue.heard == [(600, Kind.IDLE), (3600, Kind.IDLE)]


async def test_what_waits_for_its_next_try_keeps_the_idle_prompt_away(clock: ManualClock) -> None:
    t0 = clock.time()
    queue = MemoryQueue(clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.now_idle(1)
    async with running(timers):
        await clock.advance(540)
        await queue.put([comment(1, "x")])
        await clock.advance(1200)
        assert [kind for _, kind in queue.heard] == [Kind.COMMENT]
        queue.waiting = 0
        await clock.advance(601)
    assert [kind for _, kind in queue.heard] == [Kind.COMMENT, Kind.IDLE]


async def test_a_turn_that_begins_while_the_queue_is_asked_keeps_the_idle_prompt_away(clock: ManualClock) -> None:
    class Asked(MemoryQueue):
        async def depth(self) -> Depth:
            timers.turn_started()
            return await super().depth()

    queue = Asked(clock, clock.time())
    timers = Timers(queue, RunClock(clock.time(), TIMING), clock, alone=False)
    timers.now_idle(1)
    async with running(timers):
        await clock.advance(1800)
    assert queue.heard == []


async def test_nobody_is_prompted_for_idleness_after_the_last_call(clock: ManualClock) -> None:
    t0 = clock.time() - 6800
    queue = MemoryQueue(clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=False)
    timers.now_idle(1)
    async with running(timers):
        await clock.advance(400)
    assert [kind for _, kind in queue.heard] == [Kind.WIND_DOWN, Kind.LAST_CALL]


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
    clock: ManualClock, kinds: set[Kind], published: bool, reminded: bool
) -> None:
    queue = MemoryQueue(clock, clock.time())
    timers = Timers(queue, RunClock(clock.time(), TIMING), clock, alone=False)
    for _ in range(2):
        await timers.turn_completed(3, frozenset(kinds), published=published)
    assert [kind for _, kind in queue.heard] == [Kind.PUBLISH_REMINDER] * reminded


async def test_a_single_worker_goes_on_after_every_stop_until_the_last_call(clock: ManualClock) -> None:
    t0 = clock.time()
    queue = MemoryQueue(clock, t0)
    timers = Timers(queue, RunClock(t0, TIMING), clock, alone=True)
    for turn in (1, 1, 2):
        await timers.turn_completed(turn, frozenset({Kind.START}), published=True)
    assert queue.bodies == [{"template": "continue_single.md"}] * 2
    await clock.advance(7000)
    await timers.turn_completed(3, frozenset({Kind.IDLE}), published=True)
    assert len(queue.heard) == 2
