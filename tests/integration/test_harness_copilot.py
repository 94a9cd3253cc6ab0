"""GitHub Copilot CLI from npm, two versions: the cases of every CLI, and what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from adapters.base import Outcome
from adapters.copilot.adapter import CopilotAdapter
from tests.support.harness_cases import ERRORS, HarnessCases
from tests.support.harness_stage import LIMIT, LOOK, MODEL_KEY, Stage, mentions
from tests.support.router_stage import until


def _without_waits(errors: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Let the provider ask for no wait: Copilot tries five times more, with growing waits unless it is told."""
    return {f"{error.split(' retry-after')[0]} retry-after=0": outcome for error, outcome in errors.items()}


class CopilotCases(HarnessCases):
    adapter = CopilotAdapter
    package = "@github/copilot"
    errors = _without_waits(ERRORS)

    @pytest.mark.parametrize("fault", ["stall", "cut"])
    async def test_a_stream_that_breaks(self, stage: Stage, fault: str) -> None:
        if fault == "stall":
            # Only here: it is silent too while it waits before it asks the provider again.
            stage.launch = replace(stage.launch, options={**stage.launch.options, "stall_seconds": "3"})
        await super().test_a_stream_that_breaks(stage, fault)

    async def written_down(self, stage: Stage, words: str) -> None:
        folder = stage.launch.home / ".copilot" / "session-state"
        await until(lambda: any(words in path.read_text() for path in folder.glob("**/*.jsonl")), LIMIT, every=LOOK)


class TestCopilot(CopilotCases):
    version = "1.0.102"

    @pytest.mark.parametrize("wire", ["completions", "anthropic"])
    async def test_the_other_wires(self, stage: Stage, wire: str) -> None:
        stage.launch = replace(stage.launch, options={**stage.launch.options, "wire": wire})
        await stage.open(max_output_tokens=4321)
        stage.tell("notice-alpha")
        end = await stage.turn('[[mcp: echo {"text": "a"}]] [[text: x]]')
        assert end.outcome is Outcome.COMPLETED
        last = stage.loop_now()[-1]
        assert mentions(last, "notice-alpha") == 1
        assert last.path.endswith({"completions": "/v1/chat/completions", "anthropic": "/v1/messages"}[wire])
        assert last.key == MODEL_KEY
        assert 4321 in last.body.values()
        assert end.usage.output_tokens == stage.used().output_tokens

    async def test_a_command_in_the_background_holds_up_no_turn(self, stage: Stage) -> None:
        forever = self._forever(stage)
        stage.launch = replace(stage.launch, options={**stage.launch.options, "stall_seconds": "3"})
        await stage.open()
        for prompt in (f"[[bg: tail -f {forever}]] [[text: x]]", "[[text: y]]"):
            assert (await stage.turn(prompt)).outcome is Outcome.COMPLETED
            assert stage.running(str(forever))


class TestCopilot1070(CopilotCases):
    """The version of the published runs."""

    version = "1.0.70"
    # Half a minute of its own waits, as long as those of the other version.
    left_out = frozenset({"test_a_provider_that_is_not_there"})
