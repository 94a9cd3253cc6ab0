"""One worker alone, with a CLI that does what a test says, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from adapters.base import Outcome, Text, TurnEnd, TurnItem, WorkerLaunch
from agensh.clock import RunClock, SystemClock, Timing
from agensh.urls import sqlite_url
from router.alone import LoneWorker, Task
from router.queue import RetryPolicy
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer
from tests.support.router_stage import NoRuntime, Stage, StageAdapter, until

WORKER = "demo-worker1"
TIMING = Timing(budget=3600, wind_down=1200, last_call=300)
TASK = Task(WORKER, "repo", "Make it.", "", "make check", "/the/workspace.git", "1 h")
POLICY = RetryPolicy(first=5.0, ceiling=300.0, jitter=0.0)
DONE = TurnEnd(Outcome.COMPLETED)


@dataclass
class Play:
    """A worker and what it was told; each turn lasts as its script says."""

    folder: Path
    clock: ManualClock
    t0: float
    script: list[tuple[float, TurnEnd]] = field(default_factory=list)
    """Length and end of each turn; the last one counts for all that follow."""
    told: list[tuple[float, str]] = field(default_factory=list)
    stage: Stage = field(default_factory=Stage)

    def __post_init__(self) -> None:
        self.stage.turn = self.turn

    async def turn(self, adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        self.told.append((self.clock.time() - self.t0, prompt))
        length, end = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        yield Text("working")
        passed = asyncio.create_task(self.clock.sleep(length))
        cut = asyncio.create_task(adapter.interrupted.wait())
        await asyncio.wait((passed, cut), return_when=asyncio.FIRST_COMPLETED)
        over = passed.done()
        passed.cancel()
        cut.cancel()
        yield end if over else TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.")

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[Writer]:
        async with open_writer(sqlite_url(self.folder / "runtime.sqlite3"), SystemClock()) as writer:
            yield writer

    def worker(self, writer: Writer, **changes: Any) -> LoneWorker:
        launch = WorkerLaunch(
            WORKER, self.folder, self.folder, self.folder, self.folder / "log", mcp_url="", mcp_token=""
        )
        adapter = self.stage.adapter("stage")(launch, NoRuntime(), self.clock)
        run_clock = RunClock(self.t0, TIMING)
        return LoneWorker(
            adapter, task=TASK, writer=writer, run_clock=run_clock, clock=self.clock, policy=POLICY, **changes
        )

    async def pass_time(self, seconds: float, ready: Callable[[], bool] | None = None) -> None:
        """Move the clock once the next turn has begun, or once `ready` holds."""
        count = len(self.told)
        await self.clock.advance(seconds)
        await until(ready or (lambda: len(self.told) > count))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    clock = ManualClock()
    return Play(tmp_path, clock, clock.time())


async def rows(writer: Writer, query: str) -> list[Mapping[str, Any]]:
    await writer.flush()
    found = await writer.read(lambda connection: connection.execute(text(query)))
    return [dict(row) for row in found.mappings()]


async def test_it_goes_on_after_every_stop_with_the_reminders_when_they_are_due(play: Play) -> None:
    play.script = [(1000.0, DONE)] * 3 + [(400.0, DONE), (100.0, DONE)]
    async with play.writer() as writer:
        running = asyncio.create_task(play.worker(writer).run())
        await until(lambda: len(play.told) == 1)
        for length in (1000, 1000, 1000, 400):
            await play.pass_time(length)
        # Nothing follows what the last call brought; the run ends at its deadline.
        await play.clock.advance(199)
        assert not running.done()
        await play.clock.advance(1)
        await asyncio.wait_for(running, 20)
        assert [at for at, _ in play.told] == [0, 1000, 2000, 3000, 3400]
        first, second, third, wind_down, last_call = (prompt for _, prompt in play.told)
        assert first.startswith("# You work alone")
        for words in ("Make it.", "make check", "/the/workspace.git", "git push origin HEAD:main", "1 h"):
            assert words in first
        assert "You stopped, but" not in first
        assert "You stopped, but 43 min of the budget are left." in second
        assert "You stopped" in third
        assert wind_down.startswith("10 min are left. Wind down:")
        assert "You stopped" not in wind_down
        assert last_call.startswith("3 min are left. Last call:")
        for prompt in (first, second, third, wind_down, last_call):
            assert not [word for word in ("board", "chat", "forge", "pull request", "peer") if word in prompt]
        kept = await rows(writer, "SELECT prompt, text, outcome FROM turns ORDER BY id")
        assert [(row["prompt"], row["text"], row["outcome"]) for row in kept] == [
            (prompt, "working", "completed") for _, prompt in play.told
        ]


async def test_the_deadline_ends_a_running_turn(play: Play) -> None:
    play.script = [(99_999.0, DONE)]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        await play.clock.advance(3600)
        await asyncio.wait_for(running, 20)
        assert [row["outcome"] for row in await rows(writer, "SELECT outcome FROM turns")] == ["interrupted"]
        assert worker.parked is None
        assert play.stage.stops


async def test_a_stop_leaves_the_session_to_be_resumed_on_the_same_clock(play: Play) -> None:
    play.script = [(1000.0, DONE), (99_999.0, DONE)]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        await play.pass_time(1000)
        await play.clock.advance(500)
        worker.stop()
        await asyncio.wait_for(running, 20)
    await play.clock.advance(1000)
    play.script = [(100.0, DONE)]
    async with play.writer() as writer:
        running = asyncio.create_task(play.worker(writer).run())
        await until(lambda: len(play.told) == 3)
        at, prompt = play.told[2]
        assert at == 2500
        assert prompt.startswith("You were interrupted and go on in the same session.")
        assert "18 min are left. Wind down:" in prompt
        await play.pass_time(100)
        assert "You stopped, but 17 min" in play.told[3][1]
        await play.clock.advance(1000)
        await asyncio.wait_for(running, 20)
    assert play.stage.starts == [(WORKER, None), (WORKER, f"{WORKER}-s1")]


async def test_a_session_that_is_lost_is_replaced_and_told_all_again(play: Play) -> None:
    play.script = [(100.0, TurnEnd(Outcome.CONTEXT_WINDOW, "It is full.")), (99_999.0, DONE)]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        await play.clock.advance(100)
        await until(lambda: len(play.stage.starts) == 2)
        await until(lambda: play.clock.sleeping > 1)
        await play.pass_time(5)
        assert play.told[1][1].startswith("# You work alone")
        assert "Your former session is gone" in play.told[1][1]
        assert worker.session.number == 2
        worker.stop()
        await asyncio.wait_for(running, 20)


async def test_it_waits_as_long_as_the_provider_asks(play: Play) -> None:
    play.script = [(10.0, TurnEnd(Outcome.RATE_LIMITED, "Slow down.", retry_after=60.0)), (99_999.0, DONE)]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        await play.clock.advance(10)
        await until(lambda: play.clock.sleeping > 1)
        await play.clock.advance(59)
        assert len(play.told) == 1
        await play.pass_time(1)
        assert [at for at, _ in play.told] == [0, 70]
        assert worker.session.failures == 0
        worker.stop()
        await asyncio.wait_for(running, 20)


@pytest.mark.parametrize("outcome", [Outcome.QUOTA_SPENT, Outcome.AUTH])
async def test_what_only_a_person_can_help_ends_the_run(play: Play, outcome: Outcome) -> None:
    play.script = [(10.0, TurnEnd(outcome, "No more."))]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        await play.clock.advance(10)
        await asyncio.wait_for(running, 20)
        assert worker.parked is outcome
        (row,) = await rows(writer, "SELECT parked_reason FROM sessions")
        assert row["parked_reason"] == "No more."


async def test_failures_in_a_row_bring_fresh_sessions_and_then_the_end(play: Play) -> None:
    play.script = [(0.0, TurnEnd(Outcome.CRASHED, "It died."))]
    async with play.writer() as writer:
        worker = play.worker(writer)
        running = asyncio.create_task(worker.run())
        while not running.done():
            await until(lambda: running.done() or play.clock.sleeping > 1)
            await play.clock.advance(60)
        await running
        assert worker.parked is Outcome.CRASHED
        assert worker.session.number == 4
        assert len(play.told) == 12
        assert worker.session.parked_reason.endswith("The last reason: It died.")


class Meter:
    """A gateway that tells what is spent."""

    spent = 0.0

    async def usage(self) -> dict[str, Any]:
        return {"team": {"spent_usd": self.spent, "budget_usd": 10.0}, "workers": {}}


async def test_it_is_warned_once_of_each_share_of_the_budget(play: Play) -> None:
    meter = Meter()
    play.script = [(10.0, DONE)]
    async with play.writer() as writer:
        worker = play.worker(writer, usage=meter)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(play.told) == 1)
        for spent in (8.2, 8.4, 9.6, 9.7):
            meter.spent = spent
            await play.pass_time(10)
        worker.stop()
        await asyncio.wait_for(running, 20)
    warned = [" of the budget of " in prompt for _, prompt in play.told]
    assert warned == [False, True, False, True, False]
    assert "$8.20 of the budget of $10.00 are spent." in play.told[1][1]
