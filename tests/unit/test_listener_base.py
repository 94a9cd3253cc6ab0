"""The two loops of a listener: for ever, with bounded waits, and gone when cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest

from agensh.errors import ServiceError
from router.events import NewEvent
from router.listeners.base import LONGEST_WISH, REFUSED_WAIT, Listener
from tests.support.clock import ManualClock


class Nowhere:
    """A sink for listeners that find nothing."""

    async def put(self, events: Sequence[NewEvent], cursor: Mapping[str, str]) -> int:
        return 0

    async def cursor(self, source: str) -> str | None:
        return None


class Channel:
    """A push channel whose attempts to connect fail as a test says; an entry of None opens it."""

    def __init__(self, clock: ManualClock, failures: list[ServiceError | None]) -> None:
        self.clock = clock
        self.failures = failures
        self.attempts: list[float] = []
        self.cut = asyncio.Event()
        self.disconnected = 0

    async def connect(self) -> None:
        self.attempts.append(self.clock.monotonic())
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    async def disconnect(self) -> None:
        self.disconnected += 1

    async def signals(self) -> AsyncGenerator[str, None]:
        yield "something"
        await self.cut.wait()
        self.cut.clear()
        raise ServiceError("push", 0, "cut", retryable=True)


class Counting(Listener[str]):
    """A listener that counts its rounds."""

    source_name = "counting"

    def __init__(self, channel: Channel, clock: ManualClock, *, sweep_every: float = 100.0) -> None:
        super().__init__("w", channel, Nowhere(), clock, sweep_every=sweep_every, reconnect_longest=8.0)
        self.rounds: list[bool] = []
        self.failures: list[Exception] = []

    def on_connect(self) -> None:
        pass

    def on_signal(self, signal: str) -> bool:
        return True

    async def work(self, *, sweep: bool) -> None:
        self.rounds.append(sweep)
        if self.failures:
            raise self.failures.pop(0)


def down(status: int = 503, retry_after: float | None = None) -> ServiceError:
    return ServiceError("push", status, "down", retryable=True, retry_after=retry_after)


async def started(listener: Counting) -> asyncio.Task[None]:
    task = asyncio.create_task(listener.run())
    await ManualClock.settle()
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_connects_for_ever_with_bounded_waits() -> None:
    clock = ManualClock()
    channel = Channel(clock, [down() for _ in range(40)])
    listener = Counting(channel, clock)
    task = await started(listener)
    for _ in range(400):
        await clock.advance(1.0)
    assert listener.live.is_set()
    assert len(channel.attempts) == 41
    waits = [after - before for before, after in zip(channel.attempts, channel.attempts[1:], strict=False)]
    assert max(waits) <= 8.0
    assert any(wait > 2.0 for wait in waits[5:]), "it waits longer when it fails again and again"
    await ended(task)
    assert channel.disconnected >= 41
    assert clock.sleeping == 0, "nothing goes on after the end"
    assert not listener.live.is_set()


async def test_a_refusal_waits_long_and_a_wish_is_kept() -> None:
    clock = ManualClock()
    channel = Channel(clock, [down(401), down(429, retry_after=50.0)])
    task = await started(Counting(channel, clock))
    for _ in range(200):
        await clock.advance(1.0)
    first, second, third = channel.attempts
    assert second - first >= REFUSED_WAIT
    assert third - second >= 50.0
    await ended(task)


async def test_a_wish_of_a_server_whose_clock_is_wrong_does_not_silence_it() -> None:
    clock = ManualClock()
    channel = Channel(clock, [down(503, retry_after=80_000.0)])
    listener = Counting(channel, clock, sweep_every=100_000.0)
    listener.failures = [down(429, retry_after=80_000.0)]
    task = await started(listener)
    await clock.advance(LONGEST_WISH - 1)
    assert (len(channel.attempts), len(listener.rounds)) == (1, 1)
    await clock.advance(10.0)
    assert len(channel.attempts) == 2
    assert len(listener.rounds) >= 2
    await ended(task)


async def test_an_outage_is_one_line_at_its_begin_and_one_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    listener = Counting(Channel(clock, [down()] * 30), clock, sweep_every=100_000.0)
    listener.failures = [down(500)] * 5
    task = await started(listener)
    await clock.advance(400.0)
    assert listener.live.is_set()
    assert sorted(record.getMessage() for record in caplog.records) == [
        "push cut", "push is open again", "round failed", "round succeeded again",
    ]  # fmt: skip
    assert [vars(record)["failures"] for record in caplog.records if "again" in record.getMessage()] == [5, 30]
    await ended(task)


async def test_it_sweeps_without_any_push() -> None:
    clock = ManualClock()
    listener = Counting(Channel(clock, [down() for _ in range(10_000)]), clock, sweep_every=10.0)
    task = await started(listener)
    for _ in range(100):
        await clock.advance(1.0)
    assert 8 <= sum(listener.rounds) <= 13
    await ended(task)


async def test_a_failed_round_comes_again_and_is_said() -> None:
    clock = ManualClock()
    listener = Counting(Channel(clock, []), clock)
    listener.failures = [down(), ValueError("an answer nobody expected"), KeyError("id")]
    task = await started(listener)
    assert "down" in listener.last_error
    assert not listener.live.is_set()
    for _ in range(60):
        await clock.advance(1.0)
    assert listener.last_error == ""
    assert listener.live.is_set()
    await ended(task)


async def test_a_cut_is_followed_by_a_sweep() -> None:
    clock = ManualClock()
    channel = Channel(clock, [])
    listener = Counting(channel, clock, sweep_every=10_000.0)
    task = await started(listener)
    await clock.advance(30.0)
    before = sum(listener.rounds)
    channel.cut.set()
    await ManualClock.settle()
    assert not listener.live.is_set()
    await clock.advance(5.0)
    assert listener.live.is_set()
    assert sum(listener.rounds) > before
    await ended(task)


async def test_a_mistake_of_ours_ends_it() -> None:
    clock = ManualClock()
    listener = Counting(Channel(clock, []), clock)
    listener.failures = [AttributeError("a typing mistake")]
    with pytest.raises(ExceptionGroup) as caught:
        await listener.run()
    assert caught.group_contains(AttributeError)
