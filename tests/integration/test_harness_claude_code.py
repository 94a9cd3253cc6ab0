"""The real Claude Code, from npm, on the scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from adapters.base import Adapter, Outcome, SessionLost, TurnEnd
from adapters.claude_code.adapter import ClaudeCodeAdapter
from adapters.claude_code.launching import CONFIG
from tests.support.harness_cases import HarnessCases
from tests.support.harness_stage import LIMIT, LOOK, MCP_TOKEN, Stage, mentions
from tests.support.router_stage import until


class TestClaudeCode(HarnessCases):
    """All cases, and what is its own."""

    adapter: ClassVar[type[Adapter]] = ClaudeCodeAdapter
    package: ClassVar[str] = "@anthropic-ai/claude-code"
    options: ClassVar[Mapping[str, str]] = {"stall_seconds": "10"}
    hides_key: ClassVar[bool] = False

    async def written_down(self, stage: Stage, words: str) -> None:
        """See HarnessCases: it writes its transcript ten times a second."""
        folder = stage.launch.home / ".claude" / "projects"

        def written() -> bool:
            return any(words in path.read_text() for path in folder.rglob("*.jsonl"))

        await until(written, LIMIT, every=LOOK)

    async def test_the_limits_of_tokens_reach_it(self, stage: Stage) -> None:
        await stage.open(max_output_tokens=4321, max_prompt_tokens=150_000)
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED
        assert stage.loop_now()[-1].body["max_tokens"] == 4321

    async def test_the_token_is_in_a_private_file_only(self, stage: Stage) -> None:
        await stage.open()
        await stage.turn("[[text: x]]")
        assert (stage.launch.home / CONFIG).stat().st_mode & 0o777 == 0o600
        holding = [
            path for path in stage.folder.rglob("*") if path.is_file() and MCP_TOKEN.encode() in path.read_bytes()
        ]
        assert holding == [stage.launch.home / CONFIG]

    async def test_a_pause_that_the_provider_asks_for_is_the_dispatchers(self, stage: Stage) -> None:
        await stage.open()
        end = await stage.turn("[[err: 429 retry-after=40]]")
        assert end.outcome is Outcome.RATE_LIMITED
        assert end.retry_after is not None
        assert end.retry_after >= 40
        assert len(stage.loop_now()) == 1
        # It gives up at once, and does not pass on how long, where that is minutes.
        end = await stage.turn("[[err: 529 retry-after=900]]")
        assert (end.outcome, end.retry_after) == (Outcome.OVERLOADED, None)
        assert (await stage.turn("[[text: BACK]]")).outcome is Outcome.COMPLETED

    async def test_an_interrupt_before_the_turn_has_begun(self, stage: Stage) -> None:
        await stage.open()
        ends: list[TurnEnd] = []

        async def run() -> None:
            ends.append(await stage.turn("[[slow: 600]] [[text: a long answer of many words]]"))

        turn = asyncio.create_task(run())
        await asyncio.sleep(0)  # it has sent the prompt, no more
        await stage.adapter.interrupt()
        await turn
        assert ends[0].outcome is Outcome.INTERRUPTED
        assert (await stage.turn("[[text: x]]")).outcome is Outcome.COMPLETED

    async def test_nothing_begins_a_turn_but_a_prompt(self, stage: Stage) -> None:
        await stage.open()
        await stage.turn("[[bg: true]] [[text: x]]")
        offered = {tool["name"]: tool for tool in stage.loop_now()[-1].body["tools"]}
        assert "run_in_background" not in offered["Bash"]["input_schema"]["properties"]
        assert not {"CronCreate", "Monitor", "ScheduleWakeup"} & set(offered)

    async def test_hooks_that_do_not_answer_hold_nothing_up(self, stage: Stage) -> None:
        await stage.open(hooks_url="http://127.0.0.1:1/hooks/x")
        end = await stage.turn("[[bash: echo went-on]] [[text: x]]")
        assert end.outcome is Outcome.COMPLETED
        assert mentions(stage.loop_now()[-1], "went-on") > 0

    @pytest.mark.parametrize("session", ["../../etc/passwd", "", "0123abcd"])
    async def test_what_is_no_session_is_lost(self, stage: Stage, session: str) -> None:
        with pytest.raises(SessionLost):
            await stage.open(session)

    async def test_a_session_without_a_turn_is_lost(self, stage: Stage) -> None:
        session = await stage.open()
        await stage.adapter.stop()
        with pytest.raises(SessionLost):
            await stage.open(session)

    async def test_a_cli_that_cannot_start_says_where_to_look(self, stage: Stage) -> None:
        stage.launch = replace(stage.launch, options={**stage.launch.options, "binary": "/bin/true"})
        with pytest.raises(Exception, match=r"Claude Code ended at its start; see .*cli\.log"):
            await stage.open()
