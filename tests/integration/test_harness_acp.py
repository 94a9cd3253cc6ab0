"""An agent that speaks ACP through an adapter of its own, codex-acp from npm, as `worker.options` describe it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.acp.adapter import AcpAdapter
from adapters.base import HarnessUnavailable
from tests.support.harness_cases import HarnessCases
from tests.support.harness_stage import Stage, mentions

CONFIG = {
    "model": "$model",
    "model_provider": "agensh",
    "check_for_update_on_startup": False,
    "analytics": {"enabled": False},
    "features": {"plugins": False},
    "shell_environment_policy": {"exclude": ["AGENSH_MODEL_KEY"]},
    "model_providers": {
        "agensh": {
            "name": "agensh",
            "base_url": "$model_url/v1",
            "wire_api": "responses",
            "env_key": "AGENSH_MODEL_KEY",
            "request_max_retries": 1,
            "stream_max_retries": 1,
            "stream_idle_timeout_ms": 3000,
        }
    },
}


class TestCodexAcp(HarnessCases):
    """Its hooks are the agent's own affair, so notices come with the results of our tools only."""

    adapter = AcpAdapter
    package = "@agentclientprotocol/codex-acp"
    effort = ""
    # The case of a notice after a shell command is changed into this one below.
    left_out = frozenset({"test_without_hooks_the_shell_brings_nothing"})

    def options_for(self, binary: Path) -> Mapping[str, str]:
        return {
            "command": str(binary),
            "env.CODEX_CONFIG": json.dumps(CONFIG),
            "env.MODEL_PROVIDER": "agensh",
            "env.INITIAL_AGENT_MODE": "agent-full-access",
            "env.NO_BROWSER": "1",
            "env.AGENSH_MODEL_KEY": "$model_key",
        }

    async def test_a_notice_after_a_shell_command(self, stage: Stage) -> None:
        await stage.open()
        stage.tell("notice-alpha")
        await stage.turn("[[bash: true]] [[text: x]]")
        assert mentions(stage.loop_now()[-1], "notice-alpha") == 0
        await stage.turn('[[mcp: echo {"text": "a"}]] [[text: x]]')
        assert mentions(stage.loop_now()[-1], "notice-alpha") == 1

    async def test_a_binary_that_is_not_there(self, stage: Stage) -> None:
        stage.launch = replace(stage.launch, options={**stage.launch.options, "command": "/nowhere/cli --acp"})
        with pytest.raises(HarnessUnavailable, match="/nowhere/cli"):
            await stage.open()

    async def test_a_provider_that_is_not_there(self, stage: Stage) -> None:
        # Codex waits for the network for ever, and says so all the time.
        stage.launch = replace(stage.launch, options={**stage.launch.options, "stall_seconds": "3"})
        await super().test_a_provider_that_is_not_there(stage)
