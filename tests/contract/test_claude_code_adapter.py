"""The adapter of Claude Code on a stand-in for the CLI: what the real one does only when things are odd."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adapters.base import HarnessUnavailable, Outcome, SessionLost, Text, TurnEnd, TurnItem, WorkerLaunch
from adapters.claude_code.adapter import ClaudeCodeAdapter
from adapters.runtime import LocalRuntime
from agensh.clock import SystemClock
from tests.support.router_stage import until

LIMIT = 60.0  # seconds
SESSION = "0197f3a0-0000-7000-8000-000000000000"
# It answers the initialize request, then each prompt with the lines that `prompt` writes.
STAND_IN = """\
#!{python}
import json, os, sys

def say(**line):
    print(json.dumps(line), flush=True)

def init(status="connected", tools=("Bash", "mcp__agensh__echo")):
    say(type="system", subtype="init", mcp_servers=[{{"name": "agensh", "status": status}}], tools=list(tools))

def result(**more):
    say(**{{"type": "result", "subtype": "success", "terminal_reason": "completed", "result": "x", **more}})

def text(words):
    say(type="assistant", message={{"content": [{{"type": "text", "text": words}}]}}, parent_tool_use_id=None)

def heard():
    return json.loads(sys.stdin.readline())

def prompt(line):
{prompt}

{start}
while True:
    line = heard()
    if line["type"] == "user":
        prompt(line)
    elif line["type"] == "control_request":
        say(type="control_response", response={{"subtype": "success", "request_id": line["request_id"]}})
        if line["request"]["subtype"] == "interrupt":
            result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
"""
Made = Callable[..., ClaudeCodeAdapter]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    adapters: list[ClaudeCodeAdapter] = []

    def make(*prompt: str, start: str = "") -> ClaudeCodeAdapter:
        program = tmp_path / "claude"
        body = "\n".join(f"    {line}" for line in prompt or ("pass",))
        program.write_text(STAND_IN.format(python=sys.executable, prompt=body, start=start))
        program.chmod(0o755)
        home, work, tmp = (tmp_path / name for name in ("home", "work", "tmp"))
        for folder in (home, work, tmp):
            folder.mkdir()
        launch = WorkerLaunch(
            "w1",
            home,
            work,
            tmp,
            tmp_path / "cli.log",
            "http://127.0.0.1:1/mcp/w1",
            "token",
            options={"binary": str(program)},
            env={"PATH": os.environ["PATH"]},
        )
        adapters.append(ClaudeCodeAdapter(launch, LocalRuntime(), SystemClock()))
        return adapters[-1]

    yield make
    for adapter in adapters:
        await adapter.stop()


async def turn(adapter: ClaudeCodeAdapter) -> list[TurnItem]:
    async with asyncio.timeout(LIMIT):
        return [item async for item in adapter.turn("go")]


async def end_of(adapter: ClaudeCodeAdapter) -> TurnEnd:
    await adapter.start()
    end = (await turn(adapter))[-1]
    assert isinstance(end, TurnEnd)
    return end


@pytest.mark.parametrize(
    ("begun", "said"),
    [
        ("init('failed')", "Claude Code did not connect to our MCP endpoint: it is failed."),
        ("init('pending')", "Claude Code did not connect to our MCP endpoint: it is pending."),
        ("init(tools=['Bash', 'mcp__other__echo'])", "Claude Code connected to our MCP endpoint, but took none of its"),
    ],
)
async def test_a_turn_without_our_tools_is_ended_and_has_failed(made: Made, begun: str, said: str) -> None:
    end = await end_of(made(begun))
    assert end.outcome is Outcome.TOOLS_MISSING
    assert end.reason.startswith(said)


async def test_a_turn_that_nobody_asked_for_is_not_ours(made: Made) -> None:
    adapter = made(
        "init()", "text('woken')", "result(origin={'kind': 'task-notification'})", "text('ours')", "result()"
    )
    await adapter.start()
    items = await turn(adapter)
    assert items[-2:] == [Text("ours"), TurnEnd(Outcome.COMPLETED)]


async def test_what_it_asks_and_nobody_can_answer_is_refused(made: Made) -> None:
    adapter = made(
        "init()",
        "say(type='control_request', request_id='r9', request={'subtype': 'can_use_tool'})",
        "text(json.dumps(heard()))",
        "result()",
    )
    await adapter.start()
    said = (await turn(adapter))[0]
    assert isinstance(said, Text)
    answer = json.loads(said.text)["response"]
    assert (answer["subtype"], answer["request_id"]) == ("error", "r9")


async def test_a_turn_that_says_nothing_is_no_work(made: Made) -> None:
    assert (await end_of(made("init()", "result(result='')"))).outcome is Outcome.NO_WORK


async def test_a_cli_that_goes_away_has_crashed(made: Made) -> None:
    end = await end_of(made("init()", "sys.exit(7)"))
    assert (end.outcome, end.reason) == (Outcome.CRASHED, "Claude Code ended with 7 in the middle of a turn.")


async def test_a_cli_that_only_falls_silent_for_good_is_ended(made: Made) -> None:
    adapter = made("init()", "sys.stdout.flush()", "os.close(1)")
    end = await end_of(adapter)
    assert end.outcome is Outcome.CRASHED
    again = (await turn(adapter))[-1]
    assert isinstance(again, TurnEnd)
    assert again.outcome is Outcome.CRASHED


async def test_before_the_start_and_after_the_stop_there_is_no_turn(made: Made) -> None:
    adapter = made()
    assert await turn(adapter) == [TurnEnd(Outcome.CRASHED, "The CLI is not running.")]
    await adapter.interrupt()
    await adapter.start()
    await adapter.stop()
    await adapter.stop()
    assert await turn(adapter) == [TurnEnd(Outcome.CRASHED, "The CLI is not running.")]


async def test_a_session_that_it_does_not_know_is_lost(made: Made) -> None:
    words = "result(is_error=True, result='', errors=['No conversation found with session ID: x'])"
    with pytest.raises(SessionLost):
        await made(start=f"{words}; sys.exit(1)").start(SESSION)


async def test_another_end_at_the_start_says_why(made: Made) -> None:
    words = "result(is_error=True, result='', errors=['The settings are broken.'])"
    with pytest.raises(HarnessUnavailable, match=r"ended at its start: The settings are broken\.; see .*cli\.log"):
        await made(start=f"{words}; sys.exit(1)").start(SESSION)


def held() -> tuple[int, int, int, str]:
    """Return how many descriptors, threads (without the loop's pool) and tasks this process has, and its children."""
    gc.collect()
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    threads = sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return descriptors, threads, len(asyncio.all_tasks()), children


async def test_turns_restarts_and_deaths_leave_nothing(made: Made) -> None:
    adapter = made("init()", "text('x')", "result()")
    before = held()
    for _ in range(5):
        await adapter.start()
        for _ in range(5):
            assert (await turn(adapter))[-1] == TurnEnd(Outcome.COMPLETED)
        os.kill(getattr(adapter, "_connection").process.pid, signal.SIGKILL)  # noqa: B009 (no part of the interface)
        assert (await turn(adapter))[-1] != TurnEnd(Outcome.COMPLETED)
        await adapter.stop()
    await until(lambda: held() == before, LIMIT)  # the thread that has waited for a child may still be ending
