"""Drives an agent over the Agent Client Protocol: one process and one session a worker, one prompt a turn."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from string import Template
from typing import ClassVar

import agensh
from adapters.acp import failures
from adapters.acp.client import AcpClient, AgentEnded, Answer, CallFailed, Json, Silence
from adapters.acp.updates import SERVER, Log, MarkedLog, usage_of
from adapters.base import (
    Adapter,
    HarnessUnavailable,
    Outcome,
    Process,
    SessionLost,
    TurnEnd,
    TurnItem,
    Usage,
)
from adapters.endpoint import Seen, seen
from adapters.options import check_options, number, text
from adapters.provider_errors import ProviderError
from agensh.errors import UsageError

STALL = 600.0  # seconds without a word from an agent that runs no tool; thinking models are silent for minutes
LONGEST_STALL = 86_400
_START = 120.0  # seconds until it has answered; a loaded machine starts 64 of them at once
_INTERRUPT = 15.0  # seconds a turn may take to end once it was interrupted
_REAP = 5.0  # seconds an agent may live on whose output has ended
_ENV = "env."


class AcpAdapter(Adapter):
    """One worker's agent.

    Options: `command` (the command line that starts it), `session_mode` (the mode its sessions are put into),
    `stall_seconds`, and `env.NAME`, variables of its environment in which `$model_url`, `$model_key`, `$model`,
    `$effort`, `$home`, `$work` and `$tmp` stand for what the spec and the run give. A subclass overrides `command`,
    `environment`, `prepare`, `new_log`, `failure` and `usage`.
    """

    name: ClassVar[str] = "acp"
    limits_output: ClassVar[bool] = False
    agent: ClassVar[str] = "The agent"
    """How sentences name it."""
    cumulative_usage: ClassVar[bool] = False
    """The tokens of a prompt's result are those of the session since the process loaded it."""
    stops_on_interrupt: ClassVar[bool] = True
    """The agent may leave its commands running when a turn is cancelled, so that its process has to go as well."""

    _client: AcpClient | None = None
    _agent_name = ""
    _session: str = ""
    _background = False
    _ended: asyncio.Event | None = None
    _interrupted = False
    _dirty = False
    _used = Usage()
    _before = Seen()
    _connected = False

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """See Adapter.check."""
        del kind
        variables = {name: _any for name in options if name.startswith(_ENV)}
        rules = {"command": _command, "session_mode": text, "stall_seconds": number(LONGEST_STALL)}
        check_options(cls.name, options, rules | variables)
        if "command" not in options:
            raise UsageError(f"worker.options.command: missing; the {cls.name} harness needs the agent's command line.")

    # What a subclass says

    def command(self) -> list[str]:
        """Return the command line."""
        return shlex.split(self.launch.options["command"])

    def environment(self) -> dict[str, str]:
        """Return the whole environment."""
        launch = self.launch
        known = {
            "model_url": launch.model_url,
            "model_key": launch.model_key,
            "model": launch.model,
            "effort": launch.effort,
            "home": str(launch.home),
            "work": str(launch.work),
            "tmp": str(launch.tmp),
        }
        given = {
            name.removeprefix(_ENV): Template(value).safe_substitute(known)
            for name, value in launch.options.items()
            if name.startswith(_ENV)
        }
        return {
            **launch.env,
            "HOME": str(launch.home),
            "TMPDIR": str(launch.tmp),
            **given,
        }

    async def prepare(self) -> None:
        """Write what the agent reads at its start."""

    def new_log(self) -> Log:
        """Return what takes in the updates of a turn."""
        return MarkedLog() if self._agent_name in failures.MARKING else Log()

    def failure(self, log: Log, result: Json) -> ProviderError | None:
        """Return the provider's error that a prompt's result stands for, None when it is none."""
        remark = failures.of_remark(log.remark) if isinstance(log, MarkedLog) else None
        return remark or failures.of_result(result)

    async def usage(self, result: Json) -> Usage:
        """Return the tokens of the turn with this result of its prompt, an empty one where there was none."""
        found = usage_of(result)
        if found is None:
            return Usage()
        if not self.cumulative_usage:
            return found
        before, self._used = self._used, found
        if found.input_tokens < before.input_tokens:
            return found  # it has begun to count anew
        return Usage(
            found.input_tokens - before.input_tokens,
            found.cached_tokens - before.cached_tokens,
            found.output_tokens - before.output_tokens,
            found.reasoning_tokens - before.reasoning_tokens,
        )

    # The contract

    async def start(self, session: str | None = None) -> str:
        """Start the agent; see Adapter.start."""
        await self.stop()
        await self.prepare()
        process = await self.runtime.spawn(
            self.command(), env=self.environment(), cwd=self.launch.work, log=self.launch.log
        )
        client = self._client = AcpClient(process, _answer)
        self._before = await seen(self.launch) if self.launch.mcp_url else Seen()
        self._connected, self._used = False, Usage()
        self._dirty = self._background = False
        try:
            async with asyncio.timeout(_START):
                self._session = await self._open(client, session)
        except TimeoutError:
            await self.stop()
            raise HarnessUnavailable(f"{self.agent} said nothing for {_START:g} s; see {self.launch.log}.") from None
        except AgentEnded:
            await self.stop()
            code = await process.wait()
            raise HarnessUnavailable(f"{self.agent} ended with {code} at its start; see {self.launch.log}.") from None
        except CallFailed as error:
            await self.stop()
            raise HarnessUnavailable(f"{self.agent} refuses to start a session: {error}.") from error
        except BaseException:
            await self.stop()
            raise
        return self._session

    async def _open(self, client: AcpClient, session: str | None) -> str:
        about = await client.call(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": failures.CAPABILITIES,
                "clientInfo": {"name": "agensh", "version": agensh.__version__},
            },
        )
        self._agent_name = _name(about)
        given: Json = {"cwd": str(self.launch.work), "mcpServers": self._endpoints()}
        if session is None:
            session = str((await client.call("session/new", given)).get("sessionId", ""))
            if not session:
                raise HarnessUnavailable(f"{self.agent} opened a session without an id; see {self.launch.log}.")
            if _capable(about, "sessionCapabilities", "title"):
                # An agent that gets no title asks the model for one.
                with suppress(CallFailed):
                    await client.call("session/set_title", {"sessionId": session, "title": self.launch.worker})
        else:
            if not _capable(about, "loadSession"):
                raise SessionLost(f"{self.agent} cannot resume a session.")
            try:
                # The history comes as updates, which `call` drops.
                await client.call("session/load", {"sessionId": session, **given})
            except CallFailed as error:
                if error.code == failures.AUTH_REQUIRED:
                    raise
                raise SessionLost(f"{self.agent} cannot resume the session {session}: {error}.") from error
        await self._settle(client, session)
        return session

    async def _settle(self, client: AcpClient, session: str) -> None:
        mode = self.launch.options.get("session_mode", "")
        if mode:
            await client.call("session/set_mode", {"sessionId": session, "modeId": mode})

    def _endpoints(self) -> list[Json]:
        if not self.launch.mcp_url:
            return []
        # Over HTTP: it lives in the node host, and Copilot drops servers that it would have to start itself.
        headers = [{"name": "Authorization", "value": f"Bearer {self.launch.mcp_token}"}]
        return [{"type": "http", "name": SERVER, "url": self.launch.mcp_url, "headers": headers}]

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """Send one prompt; see Adapter.turn."""
        client = await self._ready()
        if client is None:
            yield TurnEnd(Outcome.CRASHED, f"{self.agent} is not running.")
            return
        log, ended = self.new_log(), asyncio.Event()
        log.background = self._background
        self._ended, self._interrupted, self._dirty = ended, False, True
        try:
            async with aclosing(self._prompt(client, log, prompt)) as items:
                async for item in items:
                    if isinstance(item, TurnEnd):
                        self._dirty = False
                        ended.set()
                    yield item
        finally:
            # Also when nobody wants the rest: the agent is still at it then, and takes no second prompt.
            ended.set()
            self._ended = None
            self._background = log.background

    async def _ready(self) -> AcpClient | None:
        """Return the client of an agent that takes a prompt, started again where an interrupt ended it."""
        if self._client is None and self._session:
            with suppress(HarnessUnavailable, SessionLost):
                await self.start(self._session)
        return None if self._dirty else self._client

    async def _prompt(self, client: AcpClient, log: Log, prompt: str) -> AsyncGenerator[TurnItem]:
        blocks = [{"type": "text", "text": prompt}]
        stall = float(self.launch.options.get("stall_seconds", STALL))
        result: Json = {}
        try:
            await client.drain()
            said = client.stream(
                "session/prompt",
                {"sessionId": self._session, "prompt": blocks},
                patience=lambda: log.patience(stall),
            )
            async for item in said:
                if isinstance(item, Answer):
                    result = item.result
                else:
                    for news in log.items(item):
                        yield news
            failed = self.failure(log, result)
        except CallFailed as error:
            failed = failures.of_error(error)
        except Silence:
            try:
                result, failed = await self._after_silence(client, log, stall)
            except AgentEnded:
                failed = ProviderError(Outcome.CRASHED, await _end_of(client.process, self.agent))
        except AgentEnded:
            failed = ProviderError(Outcome.CRASHED, await _end_of(client.process, self.agent))
        for news in log.said():
            yield news
        yield await self._end(client, log, result, failed)

    async def _after_silence(self, client: AcpClient, log: Log, stall: float) -> tuple[Json, ProviderError | None]:
        if log.lingering:
            with suppress(TimeoutError, CallFailed):
                await client.notify("session/cancel", {"sessionId": self._session})
                async with asyncio.timeout(_INTERRUPT):
                    return {**await client.late_answer(), "stopReason": "end_turn"}, None
        # Nobody knows what it waits for; the next turn finds it in the same session, started again.
        self._client = None
        await client.process.stop()
        return {}, ProviderError(Outcome.OVERLOADED, f"{self.agent} said nothing for {stall:g} s.")

    async def _end(self, client: AcpClient, log: Log, result: Json, failed: ProviderError | None) -> TurnEnd:
        usage = await self.usage(result)
        if client is not self._client and failed is None:
            # What the agent made of the end of its commands is no end of the turn.
            return TurnEnd(Outcome.INTERRUPTED, f"{self.agent} was stopped in the middle of the turn.", usage=usage)
        if self._interrupted or result.get("stopReason") == "cancelled":
            if self.stops_on_interrupt or log.background:
                self._client = None
                await client.process.stop()
            return TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.", usage=usage)
        if failed is not None:
            return failed.turn_end(usage)
        missing = await self._missing(log)
        if missing:
            return TurnEnd(Outcome.TOOLS_MISSING, missing, usage=usage)
        if not log.worked:
            return TurnEnd(Outcome.NO_WORK, "The turn ended with neither a text nor a tool call.", usage=usage)
        return TurnEnd(Outcome.COMPLETED, usage=usage)

    async def _missing(self, log: Log) -> str:
        """Return why none of our tools is there, nothing when they are."""
        self._connected = self._connected or log.ours or not self.launch.mcp_url
        if self._connected:
            return ""
        now = await seen(self.launch)
        if now.trouble:
            return f"{self.agent} did not connect to our MCP endpoint: {now.trouble}."
        if now.known and now.count <= self._before.count:
            return f"{self.agent} has asked our MCP endpoint for no tools."
        self._connected = True
        return ""

    async def interrupt(self) -> None:
        """End the running turn; an agent that does not within 15 s is stopped. See Adapter.interrupt."""
        client, ended = self._client, self._ended
        if client is None or ended is None or ended.is_set():
            return
        self._interrupted = True
        try:
            await client.notify("session/cancel", {"sessionId": self._session})
            await asyncio.wait_for(ended.wait(), _INTERRUPT)
        except AgentEnded:
            return
        except TimeoutError:
            self._client = None
            await client.process.stop()

    async def stop(self) -> None:
        """End the agent and all its children. Safe to call twice."""
        client, self._client, self._session = self._client, None, ""
        if client is not None:
            await client.process.stop()


async def _end_of(process: Process, agent: str) -> str:
    try:
        async with asyncio.timeout(_REAP):
            code = await process.wait()
    except TimeoutError:
        await process.stop()
        return f"{agent} said its last in the middle of a turn, and was ended."
    return f"{agent} ended with {code} in the middle of a turn."


def _answer(method: str, params: Json) -> Json | None:
    """Answer an agent's request: nobody is there to be asked, and the worker's folders are all that it can reach."""
    if method != "session/request_permission":
        return None
    options = [option for option in params.get("options") or [] if isinstance(option, dict)]
    for kind in ("allow_always", "allow_once"):
        for option in options:
            if option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return {"outcome": {"outcome": "cancelled"}}


def _name(about: Json) -> str:
    info = about.get("agentInfo")
    return str(info.get("name", "")) if isinstance(info, dict) else ""


def _command(value: str) -> str:
    try:
        return "" if shlex.split(value) else "it is empty"
    except ValueError as error:
        return f"it is no command line ({error})"


def _any(value: str) -> str:
    del value
    return ""


def _capable(about: Json, *names: str) -> bool:
    """Say whether an agent has a capability; an object, empty or not, says that it has."""
    value: object = about.get("agentCapabilities")
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value not in (None, False)
