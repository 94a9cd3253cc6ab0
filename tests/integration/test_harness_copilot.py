"""GitHub Copilot CLI from npm, two versions: the cases of every CLI, and what is its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from adapters.base import Outcome, Usage
from adapters.copilot.adapter import CopilotAdapter
from tests.support.harness_cases import ERRORS, HarnessCases, Staging
from tests.support.harness_stage import LIMIT, Stage
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
        await until(lambda: any(words in path.read_text() for path in folder.glob("**/*.jsonl")), LIMIT)


class TestCopilot(CopilotCases):
    version = "1.0.102"


class TestCopilot1070(CopilotCases):
    version = "1.0.70"

    @pytest.fixture
    async def stage(self, staging: Staging) -> AsyncIterator[Stage]:
        async with staging() as stage:
            # This version tells of no tokens; the gateway counts them.
            stage.used = Usage  # type: ignore[method-assign]
            yield stage

    async def test_usage_is_what_the_model_counted(self, stage: Stage) -> None:
        await stage.open()
        assert (await stage.turn("[[text: x]]")).usage == Usage()

    async def test_a_provider_that_is_not_there(self, stage: Stage) -> None:
        pytest.skip("tried with the newest version, for it takes half a minute")
