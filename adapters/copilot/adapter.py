"""Drives GitHub Copilot CLI over the Agent Client Protocol, with a provider of one's own or a GitHub login.

Decisions behind it: docs/decisions/copilot-through-acp.md. Everything of the CLI is in the worker's own home; what is
shared is the folder that the binary unpacks itself into.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from adapters.acp import failures
from adapters.acp.adapter import LONGEST_STALL, AcpAdapter
from adapters.acp.client import Json
from adapters.acp.updates import Log
from adapters.base import HarnessUnavailable, ToolActivity, Usage
from adapters.binary import BINARY, PACKAGES, program
from adapters.copilot import installed, remarks
from adapters.copilot.telemetry import VARIABLE, TokenFile
from adapters.hook_file import HOOK_SECONDS, hook_command
from adapters.options import check_options, number, one_of, path, text
from adapters.provider_errors import ProviderError
from agensh.harnesses import package
from agensh.inside import make_folder_inside, remove_inside, write_private_inside

_PACKAGE = package("@github/copilot")
_WIRES = ("responses", "completions", "anthropic")
_HOOKS = ".copilot/hooks/agensh.json"
_TOKENS = ".copilot/agensh-tokens.jsonl"
_EVENTS = ("postToolUse", "postToolUseFailure")
# Copilot blots out the value of every key in what the model sees, also inside words: it has to be unlike any word.
_NO_KEY = "agensh-no-key-c27f60d1e94b48a5"


class CopilotAdapter(AcpAdapter):
    """One worker's Copilot CLI.

    Options: `binary` or `packages` (where it is), `wire` (the provider's API: responses, completions or anthropic),
    `model_like` (a model that Copilot knows, whose limits and tools are taken for one that it does not), `cache` (the
    folder that the binary unpacks itself into), `stall_seconds`.
    """

    name: ClassVar[str] = "copilot"
    limits_output: ClassVar[bool] = True
    agent: ClassVar[str] = "Copilot"
    cumulative_usage: ClassVar[bool] = True
    stops_on_interrupt: ClassVar[bool] = False

    _binary = Path()
    _version = ""
    _cache = Path()
    _tokens: TokenFile | None = None

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """See Adapter.check."""
        del kind
        rules = {
            BINARY: path,
            PACKAGES: path,
            "wire": one_of(*_WIRES),
            "model_like": text,
            "cache": path,
            "stall_seconds": number(LONGEST_STALL),
        }
        check_options(cls.name, options, rules)

    async def start(self, session: str | None = None) -> str:
        """Start Copilot; see Adapter.start."""
        if self.launch.model_url and not self.launch.model:
            raise HarnessUnavailable("worker.model: missing; Copilot wants a name for the model of a gateway.")
        self._binary = program(self.launch, _PACKAGE, "copilot")
        self._version = await asyncio.to_thread(installed.version_of, self._binary)
        told = installed.tells_tokens(self._version)
        self._tokens = None if told else TokenFile(self.launch.home, _TOKENS, self.clock)
        named = self.launch.options.get("cache", "")
        if self.launch.contained:
            # The host's folders are not there, and the worker's own is shared with nobody.
            own = make_folder_inside
            self._cache = Path(named) if named else await asyncio.to_thread(own, self.launch.home, ".cache/copilot")
            return await super().start(session)
        made = installed.cache_of
        self._cache = Path(named) if named else await asyncio.to_thread(made, self._binary, self._version)
        async with installed.first_start(self._cache):
            opened = await super().start(session)
            await asyncio.to_thread(installed.mark_started, self._cache)
        return opened

    def command(self) -> list[str]:
        """See AcpAdapter.command."""
        line = [str(self._binary), "--acp", "--yolo"]
        if self.launch.effort:
            line += ["--reasoning-effort", self.launch.effort]
        return line

    def environment(self) -> dict[str, str]:
        """See AcpAdapter.environment."""
        launch = self.launch
        given = {
            **launch.env,
            "HOME": str(launch.home),
            "TMPDIR": str(launch.tmp),
            "COPILOT_HOME": str(self._home),
            "COPILOT_CACHE_HOME": str(self._cache),
            "COPILOT_AUTO_UPDATE": "false",
        }
        if self._tokens is not None:
            given[VARIABLE] = str(self._tokens.path)
        if launch.model:
            given["COPILOT_MODEL"] = launch.model
        if launch.model_url:
            given |= self._provider(launch.options.get("wire", _WIRES[0]))
        if launch.max_prompt_tokens:
            given["COPILOT_PROVIDER_MAX_PROMPT_TOKENS"] = str(launch.max_prompt_tokens)
        if launch.max_output_tokens:
            given["COPILOT_PROVIDER_MAX_OUTPUT_TOKENS"] = str(launch.max_output_tokens)
        return given

    def _provider(self, wire: str) -> dict[str, str]:
        launch = self.launch
        given = {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_API_KEY": launch.model_key or _NO_KEY}
        if wire == "anthropic":
            given |= {"COPILOT_PROVIDER_TYPE": "anthropic", "COPILOT_PROVIDER_BASE_URL": launch.model_url}
        else:
            given |= {"COPILOT_PROVIDER_WIRE_API": wire, "COPILOT_PROVIDER_BASE_URL": f"{launch.model_url}/v1"}
        if launch.options.get("model_like"):
            given["COPILOT_PROVIDER_MODEL_ID"] = launch.options["model_like"]
        if installed.wants_login(self._version):
            # Undocumented; the key is never sent anywhere.
            given |= {"COPILOT_ENABLE_ALT_PROVIDERS": "true", "OPENAI_API_KEY": _NO_KEY}
        return given

    @property
    def _home(self) -> Path:
        return self.launch.home / ".copilot"

    async def prepare(self) -> None:
        """See AcpAdapter.prepare: the hooks, which bring notices after any tool."""
        await asyncio.to_thread(self._write_hooks)
        if self._tokens is not None:
            await asyncio.to_thread(self._tokens.begin)

    def _write_hooks(self) -> None:
        command = hook_command(self.launch, "copilot")
        if not command:
            remove_inside(self.launch.home, _HOOKS)
            return
        hook = {"type": "command", "bash": command, "timeoutSec": 2 * HOOK_SECONDS}
        write_private_inside(
            self.launch.home, _HOOKS, json.dumps({"version": 1, "hooks": {event: [hook] for event in _EVENTS}})
        )

    def new_log(self) -> Log:
        """See AcpAdapter.new_log."""
        return CopilotLog()

    def failure(self, log: Log, result: Json) -> ProviderError | None:
        """See AcpAdapter.failure."""
        if log.chunks and remarks.is_error(log.chunks[-1]):
            return remarks.read(log.chunks.pop())
        return failures.of_result(result)

    async def usage(self, result: Json) -> Usage:
        """See AcpAdapter.usage."""
        told = await super().usage(result)
        if self._tokens is None:
            return told
        written = await self._tokens.take(answered=bool(result))
        return written if told == Usage() else told


class CopilotLog(Log):
    """A turn of Copilot, without what it says for itself."""

    def left_running(self, activity: ToolActivity) -> bool:
        """See Log.left_running: 1.0.102 ends no turn while one runs, 1.0.70 does."""
        return activity.kind == "shell" and remarks.IN_BACKGROUND in activity.summary

    def say(self, chunk: str, message: str) -> None:
        """See Log.say."""
        if chunk.startswith(remarks.RETRYING):
            self.chunks.clear()
        if not remarks.REMARK.match(chunk):
            super().say(chunk, message)
