"""The scripted harness through its adapter: a real process, a real clone, an MCP endpoint in memory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.base import Adapter, Outcome, Rule, SessionLost, Text, ToolActivity, TurnEnd, TurnItem
from adapters.registry import adapter_class, adapter_names
from adapters.runtime import LocalRuntime, descendants
from adapters.scripted.adapter import ScriptedAdapter
from agensh.clock import SystemClock
from agensh.errors import UsageError
from tests.support.router_stage import until
from tests.support.scripted_team import WORKER, Endpoint, Task, git, launch_of, make_task, serving, session_of

LIMIT = 90.0  # seconds; a turn takes about two, the machine may be busy
pytestmark = pytest.mark.timeout(4 * LIMIT)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, "basename")


@pytest.fixture
async def endpoint(task: Task) -> AsyncIterator[Endpoint]:
    async with serving(Endpoint(task.repository)) as running:
        yield running


@pytest.fixture
async def adapter(tmp_path: Path, task: Task, endpoint: Endpoint) -> AsyncIterator[Adapter]:
    running = new_adapter(tmp_path, task, endpoint)
    yield running
    await running.stop()


def new_adapter(tmp_path: Path, task: Task, endpoint: Endpoint) -> Adapter:
    return adapter_class("scripted")(launch_of(tmp_path, task, endpoint.url), LocalRuntime(), SystemClock())


async def items_of(adapter: Adapter, prompt: str) -> list[TurnItem]:
    async with asyncio.timeout(LIMIT):
        return [item async for item in adapter.turn(prompt)]


def pid_of(adapter: Adapter) -> int:
    process = getattr(adapter, "_process")  # noqa: B009 (the process is no part of the adapter's interface)
    pid: int = process.pid
    return pid


def test_the_registry_knows_its_adapters_and_names_them() -> None:
    assert adapter_class("scripted").name == "scripted"
    assert "scripted" in adapter_names()
    with pytest.raises(UsageError, match=r"worker\.harness: 'scriptd' is not known; it is one of .*scripted"):
        adapter_class("scriptd")


async def test_a_turn_does_the_whole_cycle_and_tells_what_it_did(
    task: Task, endpoint: Endpoint, adapter: Adapter
) -> None:
    await adapter.start()
    items = await items_of(adapter, task.prompt())
    end = items[-1]
    assert isinstance(end, TurnEnd)
    assert (end.outcome, end.reason) == (Outcome.COMPLETED, "")
    assert (end.usage.input_tokens, end.usage.output_tokens) == (0, 0)
    assert sum(isinstance(item, TurnEnd) for item in items) == 1
    assert isinstance(items[-2], Text)
    assert "basename is on main" in items[-2].text

    assert task.has("check.py")
    assert task.has("tests/basename.jsonl")
    assert '"basename": "tools.basename",' in task.main("src/dispatch.py")
    assert endpoint.contents("CLAIM")[0].startswith("core: ")
    summaries = endpoint.contents("PATCH_SUMMARY")
    assert len(summaries) >= 2
    assert all("files=" in text and "| idea=" in text and "| evidence=" in text for text in summaries)
    assert any("probes agree; check: " in text for text in summaries)
    assert endpoint.contents("FAIL"), "the first revisions are wrong in places that ordinary use shows"

    calls = [item for item in items if isinstance(item, ToolActivity)]
    assert {call.kind for call in calls} == {"mcp", "shell"}
    assert len({call.call_id for call in calls}) == len(calls)
    assert any(call.summary.startswith("$ git push") and call.ok for call in calls)
    assert any(call.name == "forge_pull_merge" and call.ok for call in calls)
    assert git(task.repository, "branch", "--no-merged", "main") == ""


async def test_notices_are_answered_within_the_turn(task: Task, endpoint: Endpoint, adapter: Adapter) -> None:
    await adapter.start()
    endpoint.notices.append("[demo-worker2/DM +0.1m] core: when will it be on main?")
    await items_of(adapter, task.prompt())
    assert [to for to, text in endpoint.messages if text.startswith("Thanks for asking")] == ["demo-worker2"]


async def test_the_later_of_two_claims_gives_way_and_says_so(task: Task, endpoint: Endpoint, adapter: Adapter) -> None:
    await adapter.start()
    endpoint.faster["basename: "] = "demo-worker2"
    await items_of(adapter, task.prompt())
    mine = [seq for seq, entry in enumerate(endpoint.entries, 1) if entry[0] == WORKER and "basename: " in entry[2]]
    theirs = [seq for seq, entry in enumerate(endpoint.entries, 1) if entry[0] == "demo-worker2"]
    assert theirs == [mine[0] - 1]
    assert mine[0] in endpoint.gone
    text = f"basename: your G{theirs[0]} is earlier than my G{mine[0]}, so it is yours; I release mine."
    assert endpoint.messages == [("demo-worker2", text)]
    assert not task.has("src/tools/basename.py"), "it leaves the area to the other"


async def test_the_earlier_claim_stays_and_insists_once(task: Task, endpoint: Endpoint, adapter: Adapter) -> None:
    await adapter.start()
    endpoint.slower["basename: "] = "demo-worker2"
    await items_of(adapter, task.prompt())
    insisting = [(to, text) for to, text in endpoint.messages if "please take another area" in text]
    assert [to for to, _ in insisting] == ["demo-worker2"]
    assert task.has("src/tools/basename.py")


async def test_an_interrupt_ends_the_turn_with_no_child_left(task: Task, endpoint: Endpoint, adapter: Adapter) -> None:
    await adapter.start()
    endpoint.hold("board_write")
    turn = asyncio.create_task(items_of(adapter, task.prompt()))
    await until(lambda: "board_write" in endpoint.calls, LIMIT)
    await adapter.interrupt()
    end = (await turn)[-1]
    assert isinstance(end, TurnEnd)
    assert end.outcome is Outcome.INTERRUPTED
    assert dict(descendants(pid_of(adapter))) == {}
    endpoint.held.pop("board_write").set()
    again = (await items_of(adapter, task.prompt()))[-1]
    assert isinstance(again, TurnEnd)
    assert again.outcome is Outcome.COMPLETED
    assert len(endpoint.posts) == len(set(endpoint.posts)), "the introduction is not repeated"


async def test_an_interrupt_without_a_turn_does_nothing(adapter: Adapter) -> None:
    await adapter.interrupt()
    await adapter.start()
    await adapter.interrupt()


@pytest.mark.parametrize("tool", ["board_write", "forge_pull_open", "forge_pull_merge"])
async def test_a_killed_cli_is_a_crash_and_the_session_goes_on(
    tmp_path: Path, task: Task, endpoint: Endpoint, adapter: Adapter, tool: str
) -> None:
    session = await adapter.start()
    held = endpoint.hold(tool)
    turn = asyncio.create_task(items_of(adapter, task.prompt()))
    await until(lambda: tool in endpoint.calls, LIMIT)
    os.kill(pid_of(adapter), signal.SIGKILL)
    end = (await turn)[-1]
    assert isinstance(end, TurnEnd)
    assert end.outcome is Outcome.CRASHED
    assert end.outcome.rule is Rule.RESUME
    assert "-9" in end.reason
    await adapter.stop()
    # The endpoint finishes what the killed worker asked for: the answer is lost, the effect is not.
    del endpoint.held[tool]
    held.set()

    assert session_of(tmp_path, session)["worker"] == "demo-worker1"
    assert await adapter.start(session) == session
    items = await items_of(adapter, task.prompt("[event] event_id=e2 source=control kind=resumed summary: go on"))
    last = items[-1]
    assert isinstance(last, TurnEnd)
    assert last.outcome is Outcome.COMPLETED
    for written in (endpoint.entries, endpoint.posts, endpoint.messages):
        assert len(written) == len(set(written)), "nothing is written twice"
    assert sum(text.startswith("core: ") for text in endpoint.contents("CLAIM")) == 1
    assert '"basename": "tools.basename",' in task.main("src/dispatch.py")
    assert git(task.repository, "branch", "--no-merged", "main") == ""


async def test_a_fresh_session_tidies_up_after_a_lost_one(
    tmp_path: Path, task: Task, endpoint: Endpoint, adapter: Adapter
) -> None:
    session = await adapter.start()
    held = endpoint.hold("forge_pull_merge")
    turn = asyncio.create_task(items_of(adapter, task.prompt()))
    await until(lambda: "forge_pull_merge" in endpoint.calls, LIMIT)
    branch = endpoint.pulls[0]
    await adapter.stop()
    await turn
    endpoint.refused.add(branch)
    del endpoint.held["forge_pull_merge"]
    held.set()
    (tmp_path / "home" / ".scripted" / f"{session}.json").unlink()
    with pytest.raises(SessionLost):
        await adapter.start(session)
    await adapter.start()
    await items_of(adapter, task.prompt())
    assert branch not in git(task.repository, "branch", "--list", branch)
    assert git(task.repository, "branch", "--no-merged", "main") == ""
    assert task.has("check.py")
    assert 1 in endpoint.gone, "the CLAIM of the lost session is released"


async def test_an_unknown_session_is_lost(adapter: Adapter) -> None:
    with pytest.raises(SessionLost, match="'0123abcd' is not known here"):
        await adapter.start("0123abcd")
    with pytest.raises(SessionLost, match="is not a session's name"):
        await adapter.start("../../etc/passwd")


async def test_a_session_file_that_was_cut_off_is_lost_not_a_crash(tmp_path: Path, adapter: Adapter) -> None:
    session = await adapter.start()
    await adapter.stop()
    file = tmp_path / "home" / ".scripted" / f"{session}.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text()[:20])
    with pytest.raises(SessionLost, match="cannot be read"):
        await adapter.start(session)


async def test_a_prompt_that_does_not_brief_is_a_failed_turn(adapter: Adapter) -> None:
    await adapter.start()
    end = (await items_of(adapter, "Hello."))[-1]
    assert isinstance(end, TurnEnd)
    assert end.outcome is not Outcome.COMPLETED
    assert end.reason == "The prompt does not name my worker, repository, reference."


async def test_an_endpoint_that_refuses_the_token_is_a_failed_turn(
    tmp_path: Path, task: Task, endpoint: Endpoint
) -> None:
    launch = replace(launch_of(tmp_path, task, endpoint.url), mcp_token="wrong")
    adapter = adapter_class("scripted")(launch, LocalRuntime(), SystemClock())
    try:
        await adapter.start()
        end = (await items_of(adapter, task.prompt()))[-1]
    finally:
        await adapter.stop()
    assert isinstance(end, TurnEnd)
    assert end.outcome is Outcome.TOOLS_MISSING
    assert "wrong" not in end.reason
    assert "wrong" not in launch.log.read_text()


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("rebuild", {}, r"worker\.options\.playbook: missing"),
        ("repo", {"playbook": "p"}, r"task\.kind: 'repo' is not for the scripted harness"),
        ("rebuild", {"playbook": "p", "model": "m"}, r"worker\.options\.model: no such option"),
    ],
)
def test_a_spec_it_cannot_do_is_refused_before_the_run(kind: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScriptedAdapter.check(kind, options)


def test_the_demos_spec_is_for_it() -> None:
    ScriptedAdapter.check("rebuild", {"playbook": "p"})


async def test_stop_is_safe_twice_and_a_turn_after_it_is_a_crash(task: Task, adapter: Adapter) -> None:
    await adapter.start()
    await adapter.stop()
    await adapter.stop()
    end = (await items_of(adapter, task.prompt()))[-1]
    assert end == TurnEnd(Outcome.CRASHED, "The CLI is not running.")
