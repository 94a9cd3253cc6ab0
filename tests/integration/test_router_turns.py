"""How single turns end: what becomes of the session, the events and the record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.base import HarnessUnavailable, Outcome, Text, ToolActivity, TurnEnd, TurnItem, Usage
from agensh.clock import SystemClock
from router.node import NodeHost
from router.ports import ToolCall
from tests.integration.test_router_node import ME, count, host_of, rows, running, state
from tests.support.router_stage import MemoryBoard, Stage, StageAdapter, StageBackends, Turn, direct_message, new_run


class Play:
    """One worker whose first turns go as told and whose later ones end well."""

    def __init__(self, folder: Path, *first: Turn) -> None:
        # At this speed the waits after failures shrink to half a second; the second worker never starts.
        self.run = new_run(
            folder / "r1", workers=2, stagger="50h", ramp="99h", budget="100h", wind_down="1h", last_call="1h",
            idle="90h", speed=100,
        )  # fmt: skip
        self.first = list(first)
        self.stage = Stage(self.turn)
        self.backends = StageBackends(MemoryBoard(SystemClock()))
        self.host: NodeHost = host_of(self.run, self.stage, self.backends)

    async def turn(self, adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        if self.first:
            async for item in self.first.pop(0)(adapter, prompt):
                yield item
            return
        self.host.routers[ME].dispatcher.published = True
        yield TurnEnd(Outcome.COMPLETED)

    async def until_turns(self, number: int) -> None:
        await self.stage.until(lambda: count(self.stage, ME) >= number and state(self.host) == "idle", 40)

    @property
    def sessions(self) -> list[str | None]:
        return [session for worker, session in self.stage.starts if worker == ME]


async def test_usage_text_and_tool_calls_are_recorded(tmp_path: Path) -> None:
    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        router = play.host.routers[ME]
        yield Text("one")
        yield ToolActivity("c1", "shell", "shell", "$ make")
        yield ToolActivity("c1", "shell", "shell", ok=False)
        yield ToolActivity("c2", "mcp__agensh__board_write", "mcp", ok=True)
        router.record(ToolCall("board_write", '{"type":"FACT"}', True, "status=admitted", 5.0, 6.0))
        yield ToolActivity("c3", "edit", "edit", "main.c")
        yield Text("two")
        yield TurnEnd(Outcome.COMPLETED, usage=Usage(100, 60, 20, 5, 0.25))

    play = Play(tmp_path, turn)
    async with running(play.host):
        await play.until_turns(1)
    (first,) = rows(play.run, "select * from turns")
    assert first["text"] == "one\ntwo"
    assert [first[key] for key in ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")] == [
        100, 60, 20, 5,
    ]  # fmt: skip
    assert first["cost_usd"] == 0.25
    calls = rows(play.run, "select tool, kind, ok, summary, turn_id, ended_at from tool_calls order by id")
    assert [(call["tool"], call["kind"], call["ok"], call["summary"]) for call in calls] == [
        ("shell", "shell", 0, "$ make"),
        ("board_write", "mcp", 1, "status=admitted"),
        ("edit", "edit", None, "main.c"),
    ]
    assert {call["turn_id"] for call in calls} == {first["id"]}
    assert calls[2]["ended_at"] is None
    assert not rows(play.run, "select id from events where kind = 'publish_reminder'")


async def test_half_of_a_character_is_recorded_as_unreadable_and_stops_nobody(tmp_path: Path) -> None:
    """A CLI that counts in UTF-16 cuts an emoji in two where it shortens a text; no database takes the halves."""
    half = "cut here: \ud83d"

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text(half)
        yield ToolActivity("c1", "shell", "shell", half, ok=False)
        yield TurnEnd(Outcome.REFUSED, half)

    async def parks(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield TurnEnd(Outcome.AUTH, half)

    play = Play(tmp_path, turn, parks)
    async with running(play.host):
        await play.stage.until(lambda: state(play.host) == "parked", 60)
        told = play.host.routers[ME].told()
        assert "cut here: \ufffd" in told.reason
        assert play.host.routers[ME].unpark()
        await play.until_turns(3)
        play.host.routers[ME].fail(half)
        assert play.host.routers[ME].told().reason == "cut here: \ufffd", "the board could not be told of anybody"
    first, second, *_ = rows(play.run, "select * from turns order by id")
    assert (first["text"], first["reason"], second["reason"]) == ("cut here: \ufffd",) * 3
    (call,) = rows(play.run, "select summary from tool_calls")
    assert call["summary"] == "cut here: \ufffd"


@pytest.mark.parametrize("how", ["raises", "stops"])
async def test_an_adapter_that_breaks_is_a_crashed_turn_and_the_session_goes_on(tmp_path: Path, how: str) -> None:
    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("x")
        if how == "raises":
            raise RuntimeError("broken adapter")

    play = Play(tmp_path, turn)
    async with running(play.host):
        await play.until_turns(2)
        # The start waits for its next try; the turn before that may be the one that tells of the restart.
        prompts = play.stage.prompts[ME]
        await play.stage.until(lambda: any("kind=start" in prompt for prompt in prompts[1:]))
        await play.until_turns(2)
    outcomes = rows(play.run, "select outcome, reason from turns order by id")
    expected = {
        "raises": "The adapter failed: RuntimeError: broken adapter",
        "stops": "The CLI ended the turn without a result.",
    }
    assert outcomes[0] == {"outcome": "crashed", "reason": expected[how]}
    assert play.sessions == [None, f"{ME}-s1"]  # started again, in the same session
    assert "kind=resumed" in play.stage.prompts[ME][1]
    assert not play.stage.prompts[ME][1].startswith("# You are")  # it had read the worker prompt
    start = rows(play.run, "select state, attempts, reason from events where kind = 'start'")
    assert start == [{"state": "sent", "attempts": 1, "reason": expected[how]}]


async def test_a_turn_that_died_before_it_said_anything_gets_the_worker_prompt_again(tmp_path: Path) -> None:
    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield TurnEnd(Outcome.CRASHED, "gone")

    play = Play(tmp_path, turn)
    async with running(play.host):
        await play.until_turns(2)
    assert [prompt.startswith("# You are") for prompt in play.stage.prompts[ME][:2]] == [True, True]


async def test_a_full_context_window_gives_the_events_to_a_fresh_session_at_no_cost(tmp_path: Path) -> None:
    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("x")
        yield TurnEnd(Outcome.CONTEXT_WINDOW, "full")

    play = Play(tmp_path, turn)
    async with running(play.host):
        await play.until_turns(2)
    assert play.sessions == [None, None]
    second = play.stage.prompts[ME][1]
    assert second.startswith("# You are")
    assert "kind=start" in second
    assert "Your former session is gone" in second
    assert rows(play.run, "select attempts, state from events where kind = 'start'") == [
        {"attempts": 0, "state": "sent"}
    ]
    assert rows(play.run, "select failures, restarts from sessions") == [{"failures": 0, "restarts": 0}]


async def test_a_cli_that_cannot_start_is_tried_again_and_then_parked_with_the_reason(tmp_path: Path) -> None:
    tries = 0

    async def start(self: StageAdapter, session: str | None = None) -> str:
        nonlocal tries
        tries += 1
        raise HarnessUnavailable("worker.harness: the program is not installed.")

    play = Play(tmp_path)
    factory = play.stage.adapter("stage")
    unavailable = type("Unavailable", (factory,), {"start": start})
    play.host = host_of(play.run, play.stage, play.backends, adapter_factory=lambda _name: unavailable)
    async with running(play.host):
        await play.stage.until(lambda: state(play.host) == "parked", 40)
        play.backends.ears[ME].heard.put_nowait(([direct_message(1, "kept")], {}))
        await asyncio.sleep(0)
    assert tries == 4
    parked = rows(play.run, "select parked_reason from sessions")
    assert parked == [{"parked_reason": "worker.harness: the program is not installed."}]


async def test_a_refused_prompt_costs_an_attempt_and_keeps_the_session(tmp_path: Path) -> None:
    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("no")
        yield TurnEnd(Outcome.REFUSED, "The model refused.")

    play = Play(tmp_path, turn)
    async with running(play.host):
        await play.until_turns(2)
    assert play.sessions == [None]
    start = rows(play.run, "select state, attempts, reason, handed_out from events where kind = 'start'")
    assert start == [{"state": "sent", "attempts": 1, "reason": "The model refused.", "handed_out": 2}]


async def test_a_worker_that_breaks_leaves_no_cli_behind(tmp_path: Path) -> None:
    async def start(self: StageAdapter, session: str | None = None) -> str:
        raise RuntimeError("a mistake of ours")

    play = Play(tmp_path)
    broken = type("Broken", (play.stage.adapter("stage"),), {"start": start})
    play.host = host_of(play.run, play.stage, play.backends, adapter_factory=lambda _name: broken)
    async with running(play.host):
        await play.stage.until(lambda: state(play.host) == "parked", 40)
        assert "a mistake of ours" in play.host.routers[ME].reason
        assert play.stage.stops == [ME]
