"""The ACP adapter with an agent that does what real ones do rarely; real ones are in tests/integration."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.acp.adapter import AcpAdapter
from adapters.base import Outcome, SessionLost, Text, TurnEnd, TurnItem, WorkerLaunch
from adapters.runtime import LocalRuntime
from agensh.clock import SystemClock
from router.mcp.server import create_mcp_app
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[WorkerLaunch]:
    worker = StubWorker("w1", CLOCK)
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    async with serving(create_mcp_app({"w1": worker}, clock=CLOCK)) as node:
        yield WorkerLaunch(
            "w1",
            tmp_path / "home",
            ROOT,
            tmp_path / "tmp",
            tmp_path / "log",
            mcp_url=f"{node}/mcp/w1",
            mcp_token=worker.token,
            options={"command": f"{sys.executable} -m tests.support.acp_agent loadSession", "stall_seconds": "1"},
            env={"PATH": os.environ["PATH"]},
        )


@pytest.fixture
async def adapter(launch: WorkerLaunch) -> AsyncIterator[AcpAdapter]:
    adapter = AcpAdapter(launch, LocalRuntime(), CLOCK)
    await adapter.start()
    yield adapter
    await adapter.stop()


async def turn(adapter: AcpAdapter, prompt: str) -> tuple[str, TurnEnd]:
    async with asyncio.timeout(60):
        items: list[TurnItem] = [item async for item in adapter.turn(prompt)]
    end = items[-1]
    assert isinstance(end, TurnEnd)
    return "".join(item.text for item in items if isinstance(item, Text)), end


async def test_permissions_are_given_and_nothing_else_is_offered(adapter: AcpAdapter) -> None:
    said, _ = await turn(adapter, "ask")
    assert said == '{"outcome": {"outcome": "selected", "optionId": "o-allow_always"}}'
    said, _ = await turn(adapter, "read")
    assert said == "-32601"


async def test_an_agent_that_asks_for_no_tools_has_not_worked(adapter: AcpAdapter) -> None:
    said, end = await turn(adapter, "work")
    assert said == "done"
    assert end.outcome is Outcome.TOOLS_MISSING
    assert "has asked our MCP endpoint for no tools" in end.reason


async def test_an_agent_whose_output_ends_is_ended(adapter: AcpAdapter) -> None:
    _, end = await turn(adapter, "mute")
    assert end.outcome is Outcome.CRASHED


@pytest.mark.parametrize("prompt", ["silent", "chatter"])
async def test_an_agent_that_stands_still_is_started_again_in_its_session(adapter: AcpAdapter, prompt: str) -> None:
    _, end = await turn(adapter, prompt)
    assert (end.outcome, end.reason) == (Outcome.OVERLOADED, "The agent said nothing for 1 s.")
    said, _ = await turn(adapter, "work")
    assert said == "done"  # and not what was said before


async def test_a_turn_that_nobody_followed_to_its_end_is_the_last_one(adapter: AcpAdapter) -> None:
    turns = adapter.turn("silent")
    waiting = asyncio.ensure_future(anext(turns))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    _, end = await turn(adapter, "work")
    assert (end.outcome, end.reason) == (Outcome.CRASHED, "The agent is not running.")
    await adapter.start("s1")
    said, _ = await turn(adapter, "work")
    assert said == "done"


async def test_a_stopped_adapter_stays_stopped(adapter: AcpAdapter) -> None:
    await adapter.stop()
    _, end = await turn(adapter, "work")
    assert end.outcome is Outcome.CRASHED


async def test_an_agent_that_cannot_resume_has_lost_its_session(launch: WorkerLaunch) -> None:
    launch.options["command"] = f"{sys.executable} -m tests.support.acp_agent"  # type: ignore[index]
    adapter = AcpAdapter(launch, LocalRuntime(), CLOCK)
    with pytest.raises(SessionLost):
        await adapter.start("s1")
