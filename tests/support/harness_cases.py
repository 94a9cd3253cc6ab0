"""What every adapter of a real CLI has to do, whichever CLI it is.

A test module gives a subclass of `HarnessCases` with the adapter and the npm package; pytest collects the cases from
it. Where a CLI cannot do something, or words it differently, the subclass says so with a class attribute or overrides
the case and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from adapters.base import Adapter, HarnessUnavailable, Outcome, SessionLost, Text, ToolActivity, TurnEnd
from agensh.harnesses import install
from tests.support.harness_stage import (
    LIMIT,
    LOOK,
    MCP_TOKEN,
    MODEL_KEY,
    Stage,
    harness_stage,
    late_endpoint,
    mentions,
    ours,
    tokens,
)
from tests.support.router_stage import until

ERRORS: Mapping[str, Outcome] = {
    "400": Outcome.REFUSED,
    "401": Outcome.AUTH,
    "402 code=agensh_budget_spent": Outcome.QUOTA_SPENT,
    "403": Outcome.AUTH,
    "429 retry-after=1": Outcome.RATE_LIMITED,
    "500": Outcome.OVERLOADED,
    "529": Outcome.OVERLOADED,
}
Staging = Callable[..., AbstractAsyncContextManager[Stage]]


class HarnessCases:
    """The cases. The attributes say what differs from CLI to CLI."""

    adapter: ClassVar[type[Adapter]]
    package: ClassVar[str]
    """On npm; one of `agensh.harnesses.TESTED`."""
    version: ClassVar[str] = ""
    """Empty: the newest tested one."""
    model: ClassVar[str] = "scripted"
    effort: ClassVar[str] = "high"
    """One that the CLI passes on as it is; empty: it passes none on."""
    options: ClassVar[Mapping[str, str]] = {}
    """`worker.options` of all cases: few retries, a short wait for a stalled stream."""
    errors: ClassVar[Mapping[str, Outcome]] = ERRORS
    """The provider's errors and what each is; with a wait that is short where the CLI's own is long."""
    context_error: ClassVar[str] = "400 code=context_length_exceeded"
    """The provider's error for a full context window."""
    tells_retry_after: ClassVar[bool] = False
    """The CLI passes on how long the provider asks to wait; otherwise it waits itself."""
    hides_key: ClassVar[bool] = True
    """The CLI keeps the key of the model from its shell."""
    structured_copies: ClassVar[int] = 1
    """How often the CLI shows the model a text block beside structured data."""

    left_out: ClassVar[frozenset[str]] = frozenset()
    """Cases by name that another module or version of the CLI stands for, to save time."""

    # Set-up

    @pytest.fixture(autouse=True)
    def leave_out(self, request: pytest.FixtureRequest) -> None:
        """Skip what is left out, before a CLI is started."""
        if request.function.__name__ in self.left_out:
            pytest.skip("another module stands for it")

    def options_for(self, binary: Path) -> Mapping[str, str]:
        """Return `worker.options` for an installed CLI."""
        return {"binary": str(binary), **self.options}

    @pytest.fixture
    def binary(self) -> Path:
        """Install the CLI."""
        return install(self.package, self.version)

    @pytest.fixture
    def staging(self, binary: Path, tmp_path: Path) -> Staging:
        """Return what sets up a stage."""

        def start(*, structured: bool = False) -> AbstractAsyncContextManager[Stage]:
            options = self.options_for(binary)
            return harness_stage(tmp_path, self.adapter, options=options, model=self.model, structured=structured)

        return start

    @pytest.fixture
    async def stage(self, staging: Staging) -> AsyncIterator[Stage]:
        """Return a stage with our own endpoint."""
        async with staging() as stage:
            yield stage

    async def written_down(self, stage: Stage, words: str) -> None:
        """Wait until the CLI has what it was told on the disk; for one that writes late."""

    # Turns

    async def test_three_turns_in_one_session(self, stage: Stage) -> None:
        session = await stage.open()
        assert session
        for number in (1, 2, 3):
            end = await stage.turn(f"Prompt {number}. [[text: ANSWER-{number}]]")
            assert (end.outcome, end.reason) == (Outcome.COMPLETED, "")
            said = "".join(item.text for item in stage.items if isinstance(item, Text))
            assert said.strip() == f"ANSWER-{number}"
            assert tokens(end.usage) == stage.used()
        last = stage.loop_now()[-1]
        for number in (1, 2, 3):
            assert mentions(last, f"Prompt {number}.") == 1
        assert mentions(last, "ANSWER-2") > 0
        assert last.key == MODEL_KEY
        assert last.conversation is not None
        assert last.conversation.model == self.model

    async def test_the_effort_reaches_the_wire(self, stage: Stage) -> None:
        if not self.effort:
            pytest.skip("this CLI passes no effort on")
        await stage.open(effort=self.effort)
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED
        conversation = stage.loop_now()[-1].conversation
        assert conversation is not None
        assert conversation.effort == self.effort

    async def test_usage_is_what_the_model_counted(self, stage: Stage) -> None:
        await stage.open()
        figures = "[[usage: input=1000 cached=400 output=30 reasoning=7]]"
        first = await stage.turn(f'{figures} [[mcp: echo {{"text": "a"}}]] [[bash: true]] [[think: hm]]')
        assert first.outcome is Outcome.COMPLETED
        assert stage.used().input_tokens >= 3000
        assert tokens(first.usage) == stage.used()
        second = await stage.turn("[[usage: input=1200 cached=900 output=5 reasoning=0]] [[text: x]]")
        assert tokens(second.usage) == stage.used()

    async def test_tools_are_reported(self, stage: Stage) -> None:
        await stage.open()
        prompt = '[[bash: echo "from the $((40 + 2))"]] [[mcp: echo {"text": "x"}]] [[mcp: refuse {"text": "x"}]]'
        assert (await stage.turn(prompt)).outcome is Outcome.COMPLETED
        done = [item for item in stage.items if isinstance(item, ToolActivity) and item.ok is not None]
        assert [(item.kind, item.ok) for item in done] == [("shell", True), ("mcp", True), ("mcp", False)]
        assert "from the 42" in done[0].summary
        assert "echo" in done[1].name
        begun = [item.call_id for item in stage.items if isinstance(item, ToolActivity) and item.ok is None]
        assert begun == [item.call_id for item in done]

    # Notices

    @pytest.mark.parametrize("structured", [False, True], ids=["text", "structured"])
    async def test_a_notice_reaches_the_next_request(self, staging: Staging, structured: bool) -> None:
        async with staging(structured=structured) as stage:
            # Only the results carry it here, so that it is their doing.
            await stage.open(hooks_url="")
            for tool, said in (("echo", "echo: payload-1"), ("refuse", "refused: payload-1")):
                stage.tell(f"notice-{tool}")
                end = await stage.turn(f'[[mcp: {tool} {{"text": "payload-1"}}]] [[text: x]]')
                assert end.outcome is Outcome.COMPLETED
                asking, next_request = stage.loop_now()
                assert mentions(asking, f"notice-{tool}") == 0
                assert mentions(next_request, f"notice-{tool}") == (self.structured_copies if structured else 1)
                assert mentions(next_request, said) > 0
            assert [call.tool for call in stage.worker.calls] == ([] if structured else ["echo", "refuse"])

    async def test_a_notice_after_a_shell_command(self, stage: Stage) -> None:
        await stage.open()
        for command, notice in (("true", "notice-alpha"), ("exit 3", "notice-beta")):
            stage.tell(notice)
            end = await stage.turn(f"[[bash: {command}]] [[text: x]]")
            assert end.outcome is Outcome.COMPLETED
            asking, next_request = stage.loop_now()
            assert mentions(asking, notice) == 0
            assert mentions(next_request, notice) == 1

    async def test_nothing_comes_twice_by_the_two_ways(self, stage: Stage) -> None:
        await stage.open()
        for number in range(3):
            stage.tell(f"notice-{number}-alpha")
            await stage.turn('[[mcp: echo {"text": "a"}]] [[bash: true]] [[mcp: refuse {"text": "a"}]] [[text: x]]')
            stage.tell(f"notice-{number}-beta")
            await stage.turn('[[bash: true]] [[mcp: echo {"text": "a"}]] [[bash: exit 3]] [[text: x]]')
        last = stage.loop_now()[-1]
        phrases = [f"notice-{number}-{word}" for number in range(3) for word in ("alpha", "beta")]
        assert {phrase: mentions(last, phrase) for phrase in phrases} == dict.fromkeys(phrases, 1)

    async def test_without_hooks_the_shell_brings_nothing(self, stage: Stage) -> None:
        await stage.open(hooks_url="")
        stage.tell("notice-alpha")
        await stage.turn("[[bash: true]] [[text: x]]")
        assert mentions(stage.loop_now()[-1], "notice-alpha") == 0
        await stage.turn('[[mcp: echo {"text": "a"}]] [[text: x]]')
        assert mentions(stage.loop_now()[-1], "notice-alpha") == 1

    # Alone

    async def test_a_worker_without_our_endpoint_works_with_its_own_tools(self, stage: Stage) -> None:
        await stage.open(mcp_url="", mcp_token="", hooks_url="")
        end = await stage.turn("[[bash: echo alone > made]] [[text: x]]")
        assert (end.outcome, end.reason) == (Outcome.COMPLETED, "")
        assert (stage.launch.work / "made").read_text() == "alone\n"
        assert not ours(stage.loop_now()[-1])

    # Ends

    @pytest.mark.parametrize("tool", ["shell", "mcp"])
    async def test_a_cli_that_is_killed_in_a_tool_goes_on_with_its_history(self, stage: Stage, tool: str) -> None:
        session = await stage.open()
        await stage.turn("Before. [[text: FIRST-ANSWER]]")
        forever = self._forever(stage)
        prompt = f"[[bash: tail -f {forever}]]" if tool == "shell" else '[[mcp: hold {"text": "x"}]]'
        turn = asyncio.create_task(stage.turn(f"Killed. {prompt}"))
        if tool == "shell":
            await until(lambda: bool(stage.running(f"tail -f {forever}")), LIMIT, every=LOOK)
        else:
            await asyncio.wait_for(stage.tools.holding.wait(), LIMIT)
        await self.written_down(stage, "Killed.")
        stage.kill()
        end = await turn
        assert end.outcome is Outcome.CRASHED
        assert end.reason
        await stage.adapter.stop()
        await until(lambda: not stage.left(), LIMIT, every=LOOK)
        assert await stage.open(session) == session
        assert (await stage.turn("After. [[text: SECOND-ANSWER]]")).outcome is Outcome.COMPLETED
        last = stage.loop_now()[-1]
        for phrase in ("Before.", "FIRST-ANSWER", "Killed.", "After."):
            assert mentions(last, phrase) > 0, phrase

    async def test_an_interrupt_leaves_no_child(self, stage: Stage) -> None:
        session = await stage.open()
        forever = self._forever(stage)
        turn = asyncio.create_task(stage.turn(f"[[bash: tail -f {forever}]]"))
        await until(lambda: bool(stage.running(f"tail -f {forever}")), LIMIT, every=LOOK)
        await stage.adapter.interrupt()
        assert (await turn).outcome is Outcome.INTERRUPTED
        await until(lambda: not stage.running(str(forever)), LIMIT, every=LOOK)
        # The CLI lives on, with its session.
        assert (await stage.turn("Afterwards. [[text: x]]")).outcome is Outcome.COMPLETED
        assert mentions(stage.loop_now()[-1], "tail -f") > 0
        await stage.adapter.interrupt()  # nothing runs
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED
        assert session

    async def test_an_interrupt_while_it_speaks(self, stage: Stage) -> None:
        await stage.open()
        asked = len(stage.model.requests)
        turn = asyncio.create_task(stage.turn("[[slow: 600]] [[text: a long answer of many words]]"))
        await stage.model.until(lambda model: len(model.requests) > asked, LIMIT)
        await stage.adapter.interrupt()
        assert (await turn).outcome is Outcome.INTERRUPTED
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED

    async def test_a_stop_leaves_nothing(self, stage: Stage) -> None:
        await stage.open()
        forever = self._forever(stage)
        turn = asyncio.create_task(stage.turn(f"[[bash: tail -f {forever}]]"))
        await until(lambda: bool(stage.running(f"tail -f {forever}")), LIMIT, every=LOOK)
        for line in stage.left().values():
            assert MCP_TOKEN not in line
            assert MODEL_KEY not in line
        await asyncio.gather(stage.adapter.stop(), stage.adapter.stop())
        assert (await turn).outcome in (Outcome.CRASHED, Outcome.INTERRUPTED)
        await until(lambda: not stage.left(), LIMIT, every=LOOK)

    async def test_an_unknown_session_is_lost(self, stage: Stage) -> None:
        with pytest.raises(SessionLost):
            await stage.open("0197f3a0-0000-7000-8000-000000000000")

    async def test_a_binary_that_is_not_there(self, stage: Stage) -> None:
        stage.launch = replace(stage.launch, options={**stage.launch.options, "binary": "/nowhere/cli"})
        with pytest.raises(HarnessUnavailable, match="/nowhere/cli"):
            await stage.open()

    # What goes wrong at the provider

    async def test_errors_of_the_provider(self, stage: Stage) -> None:
        await stage.open()
        found: dict[str, Outcome] = {}
        for error in self.errors:
            end = await stage.turn(f"[[err: {error}]]")
            found[error] = end.outcome
            assert end.reason
            if end.outcome is Outcome.RATE_LIMITED and self.tells_retry_after:
                assert end.retry_after == 1
            # The session goes on once the provider does.
            after = await stage.turn("[[text: BACK]]")
            assert (error, after.outcome, after.reason) == (error, Outcome.COMPLETED, "")
        assert found == self.errors

    async def test_a_full_context_window(self, stage: Stage) -> None:
        await stage.open()
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED
        assert (await stage.turn(f"[[err: {self.context_error}]]")).outcome is Outcome.CONTEXT_WINDOW

    async def test_an_error_that_passes(self, stage: Stage) -> None:
        await stage.open()
        end = await stage.turn("[[err: 500x1]] [[text: ANSWER]]")
        assert (end.outcome, end.reason) == (Outcome.COMPLETED, "")

    @pytest.mark.parametrize("fault", ["stall", "cut"])
    async def test_a_stream_that_breaks(self, stage: Stage, fault: str) -> None:
        await stage.open()
        end = await stage.turn(f"[[{fault}]]")
        assert end.outcome is Outcome.OVERLOADED
        assert end.reason
        assert (await stage.turn("[[text: BACK]]")).outcome is Outcome.COMPLETED

    async def test_a_provider_that_is_not_there(self, stage: Stage) -> None:
        await stage.open(model_url="http://127.0.0.1:1")
        end = await stage.turn("[[text: x]]")
        assert end.outcome is Outcome.OVERLOADED
        assert end.reason

    # What goes wrong at our endpoint

    @pytest.mark.parametrize("missing", ["gone", "token"])
    async def test_without_our_tools_a_turn_has_failed(self, stage: Stage, missing: str) -> None:
        end = (
            await self.first_turn(stage, mcp_url="http://127.0.0.1:1/mcp/x")
            if missing == "gone"
            else (await self.first_turn(stage, mcp_token="wrong-token-wrong-token-wrong-token"))
        )
        assert end.outcome is Outcome.TOOLS_MISSING
        assert end.reason

    async def test_a_turn_is_green_only_with_tools_that_came_in_time(self, stage: Stage) -> None:
        """Our endpoint answers the CLI late; a prompt that was answered without our tools is not done."""
        async with late_endpoint(stage, 3.0) as url:
            end = await self.first_turn(stage, mcp_url=url)
            loop = stage.loop_now()
            offered = bool(loop) and all(ours(each) for each in loop)
            assert end.outcome is (Outcome.COMPLETED if offered else Outcome.TOOLS_MISSING), end
            if not offered:
                assert end.reason
                await stage.adapter.stop()
                await stage.open(mcp_url=url)
                assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED
                assert all(ours(each) for each in stage.loop_now())

    async def test_a_turn_that_says_nothing_is_no_work(self, stage: Stage) -> None:
        await stage.open()
        end = await stage.turn("[[text: ]]")
        assert end.outcome is Outcome.NO_WORK, end
        assert end.reason
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED

    async def first_turn(self, stage: Stage, **changes: str) -> TurnEnd:
        """Start the CLI and run one turn."""
        await stage.open(**changes)
        return await stage.turn("[[text: x]]")

    # Secrets and folders

    async def test_the_key_of_the_model_stays_away_from_the_shell(self, stage: Stage) -> None:
        if not self.hides_key:
            pytest.skip("this CLI hands it to its shell")
        await stage.open()
        await stage.turn("[[bash: env; echo end-of-env]] [[text: x]]")
        last = stage.loop_now()[-1]
        assert mentions(last, "end-of-env") > 0
        assert mentions(last, MODEL_KEY) == 0
        assert mentions(last, f"AGENSH_WORKER={stage.launch.worker}") > 0

    async def test_it_writes_into_the_workers_folders_only(self, stage: Stage) -> None:
        await stage.open()
        await stage.turn("[[bash: pwd > here]] [[text: x]]")
        assert (stage.launch.work / "here").read_text().strip() == str(stage.launch.work)
        known = {"home", "work", "tmp", "cli.log", "forever"}
        assert {path.name for path in stage.folder.iterdir()} <= known
        # The worker's clone is there, and a file of ours or of the CLI's would be committed with the rest.
        assert {path.name for path in stage.launch.work.iterdir()} == {"here"}

    @staticmethod
    def _forever(stage: Stage) -> Path:
        """Return a file to follow for ever; its name tells whose process it is."""
        path = stage.folder / "forever"
        path.touch()
        return path
