"""Drives a worker's Codex: one `codex app-server`, one thread, one turn at a time.

- A session is a thread; its id resumes it in a new process, with its history.
- Our endpoint is an MCP server of the CLI. Codex does not wait for one to start, so each turn asks for it first: a turn
  without our tools does not begin.
- Codex counts tokens over the whole thread; a turn's usage is the difference.
- An interrupt leaves the running command alive; the adapter has Codex end its terminals.
- While no connection to the provider can be made, Codex waits for ever; the adapter gives the turn up.
- Codex has no limit for the tokens of an answer; `worker.max_output_tokens` is refused.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, ClassVar

import agensh
from adapters.base import (
    Adapter,
    HarnessUnavailable,
    Outcome,
    SessionLost,
    ToolActivity,
    TurnEnd,
    TurnItem,
    Usage,
    end_of,
)
from adapters.binary import BINARY, PACKAGES, program
from adapters.codex.app_server import AppServer, Json, RequestRefused, ServerGone
from adapters.codex.config import SERVER, START_SECONDS, codex_home, environment, write_configuration
from adapters.codex.reading import Counter, error_of, item_of
from adapters.options import check_options, number, path
from adapters.provider_errors import ProviderError, sentence
from agensh.harnesses import package

PACKAGE = package("@openai/codex")
_ANSWER = 60.0  # seconds for an answer that needs no model; a loaded machine starts many CLIs at once
_OFFLINE = 120.0  # seconds without a connection before a turn is given up; Codex itself waits for ever
_TOOLS = START_SECONDS + _ANSWER  # seconds; it answers once the server has started or failed
log = logging.getLogger(__name__)


class CodexAdapter(Adapter):
    """One Codex. Options: `binary`, `packages`, `retries`, `stall_seconds`."""

    name: ClassVar[str] = "codex"
    limits_output: ClassVar[bool] = False

    _server: AppServer | None = None
    _thread = ""
    _turn = ""
    """The running turn; empty while none runs or its id is not known yet."""
    _wanted_end = False
    """The running turn is to be interrupted."""
    _running = False
    _offline_since: float | None = None

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """See Adapter.check."""
        del kind
        check_options(
            cls.name, options, {BINARY: path, PACKAGES: path, "retries": number(100), "stall_seconds": number(86_400)}
        )

    async def start(self, session: str | None = None) -> str:
        """See Adapter.start."""
        await self.stop()
        launch = self.launch
        binary = program(launch, PACKAGE, "codex")
        write_configuration(launch)
        process = await self.runtime.spawn(
            [str(binary), "app-server"], env=environment(launch), cwd=launch.work, log=launch.log
        )
        server = self._server = AppServer(process)
        try:
            self._thread = await self._open(server, session)
        except TimeoutError:
            await self.stop()
            raise HarnessUnavailable(f"Codex did not answer within {_ANSWER:g} s; see {launch.log}.") from None
        except ServerGone:
            code = await end_of(process)
            await self.stop()
            raise HarnessUnavailable(f"Codex ended with {code} at its start; see {launch.log}.") from None
        except BaseException:
            await self.stop()
            raise
        self._counter = Counter(None if session else Usage())
        return self._thread

    async def _open(self, server: AppServer, session: str | None) -> str:
        about = {"name": "agensh", "title": "Agensh", "version": agensh.__version__}
        # experimentalApi: `thread/backgroundTerminals/clean`.
        await self._ask(server, "initialize", {"clientInfo": about, "capabilities": {"experimentalApi": True}})
        await server.notify("initialized")
        await self._trust_hooks(server)
        place = {"cwd": str(self.launch.work), "approvalPolicy": "never", "sandbox": "danger-full-access"}
        try:
            if session:
                found = await self._ask(server, "thread/resume", {"threadId": session, "excludeTurns": True, **place})
            else:
                found = await self._ask(server, "thread/start", place)
        except RequestRefused as error:
            said = sentence(str(error))
            if session:
                raise SessionLost(f"Codex cannot resume thread {session}: {said}") from error
            raise HarnessUnavailable(f"Codex starts no thread: {said}") from error
        return str(found["thread"]["id"])

    async def _trust_hooks(self, server: AppServer) -> None:
        """Let Codex run our hook: it runs none whose hash is not among those its user has trusted."""
        if not self.launch.hooks_url:
            return
        listed = await self._ask(server, "hooks/list", {"cwds": [str(self.launch.work)]})
        ours = str(codex_home(self.launch) / "hooks.json")
        trusted = {
            hook["key"]: {"trusted_hash": hook["currentHash"]}
            for folder in listed["data"]
            for hook in folder["hooks"]
            if hook["sourcePath"] == ours
        }
        edit = {"keyPath": "hooks.state", "value": trusted, "mergeStrategy": "upsert"}
        await self._ask(server, "config/batchWrite", {"edits": [edit], "reloadUserConfig": True})

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """See Adapter.turn."""
        server = self._server
        if server is None:
            yield TurnEnd(Outcome.CRASHED, "Codex is not running.")
            return
        self._turn, self._wanted_end, self._running, self._offline_since = "", False, True, None
        self._counter.begin()
        try:
            async for item in self._played(server, prompt):
                yield item
        except ServerGone:
            yield await self._gone(server)
        except RequestRefused as error:
            yield TurnEnd(
                Outcome.CRASHED, f"Codex refuses the prompt: {sentence(str(error))}", usage=self._counter.turn
            )
        except TimeoutError:
            yield TurnEnd(Outcome.CRASHED, f"Codex did not answer within {_ANSWER:g} s.", usage=self._counter.turn)
        finally:
            self._turn, self._running = "", False

    async def _played(self, server: AppServer, prompt: str) -> AsyncIterator[TurnItem]:
        missing = await self._missing_tools(server)
        if missing:
            yield TurnEnd(Outcome.TOOLS_MISSING, missing)
            return
        server.forget()
        said = {"type": "text", "text": prompt, "text_elements": []}
        asked: Json = {"threadId": self._thread, "input": [said]}
        if self.launch.effort:
            asked["effort"] = self.launch.effort
        begun = await self._ask(server, "turn/start", asked)
        self._turn = str(begun["turn"]["id"])
        if self._wanted_end:
            await self._interrupt(server)
        active = False
        lost: ProviderError | None = None
        while (message := await server.notification()) is not None:
            params = message.get("params") or {}
            if params.get("threadId") != self._thread:
                continue
            method = message["method"]
            if method == "turn/completed" and params["turn"]["id"] == self._turn:
                yield await self._end(server, params["turn"], active=active, lost=lost)
                return
            if method == "error":
                if lost is None and self._gives_up(params):
                    lost = error_of(params.get("error") or {})
                    await self._interrupt(server)
                continue
            self._offline_since = None
            if method == "thread/tokenUsage/updated":
                self._counter.take(params.get("tokenUsage") or {})
            elif method in ("item/started", "item/completed"):
                item = item_of(params.get("item") or {}, done=method == "item/completed")
                if item is not None:
                    active = active or isinstance(item, ToolActivity) or bool(item.text.strip())
                    yield item
        raise ServerGone

    async def _missing_tools(self, server: AppServer) -> str:
        """Return why our tools are not there, nothing when they are. Waits until the endpoint is up or has failed."""
        if not self.launch.mcp_url:
            return ""
        asked = {"threadId": self._thread, "serverName": SERVER, "detail": "toolsAndAuthOnly"}
        listed = await server.request("mcpServerStatus/list", asked, limit=_TOOLS)
        for row in listed.get("data") or []:
            if row.get("name") == SERVER:
                if row.get("runtimeStatus") == "connected" and row.get("tools"):
                    return ""
                why = row.get("toolsError") or row.get("runtimeStatus") or "it lists no tools"
                return f"Codex could not connect to the team's tools: {sentence(str(why))}"
        return "Codex does not know the team's tools."

    def _gives_up(self, params: Json) -> bool:
        """Take in an error that Codex waits out; say whether that has gone on for too long."""
        info = (params.get("error") or {}).get("codexErrorInfo")
        about = next(iter(info.values()), None) if isinstance(info, dict) else None
        if not params.get("willRetry") or not isinstance(about, dict) or about.get("httpStatusCode") is not None:
            return False
        now = self.clock.monotonic()
        if self._offline_since is None:
            self._offline_since = now
        return now - self._offline_since > float(self.launch.options.get("stall_seconds", _OFFLINE))

    async def _end(
        self, server: AppServer, turn: Mapping[str, Any], *, active: bool, lost: ProviderError | None
    ) -> TurnEnd:
        usage = self._counter.turn
        match turn.get("status"):
            case "completed" if active:
                return TurnEnd(Outcome.COMPLETED, usage=usage)
            case "completed":
                return TurnEnd(Outcome.NO_WORK, "Codex ended the turn without a word and without a tool.", usage=usage)
            case "interrupted":
                await self._ask(server, "thread/backgroundTerminals/clean", {"threadId": self._thread})
                if lost is not None:
                    return lost.turn_end(usage)
                return TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.", usage=usage)
        return error_of(turn.get("error") or {}).turn_end(usage)

    async def _gone(self, server: AppServer) -> TurnEnd:
        code = await end_of(server.process)
        return TurnEnd(Outcome.CRASHED, f"Codex ended with {code} in the middle of a turn.", usage=self._counter.turn)

    async def interrupt(self) -> None:
        """See Adapter.interrupt."""
        if self._server is None or not self._running:
            return
        self._wanted_end = True
        if self._turn:
            await self._interrupt(self._server)

    async def _interrupt(self, server: AppServer) -> None:
        try:
            await self._ask(server, "turn/interrupt", {"threadId": self._thread, "turnId": self._turn})
        except (RequestRefused, ServerGone) as error:
            # The turn ended by itself meanwhile.
            log.info("nothing to interrupt", extra={"worker": self.launch.worker, "error": str(error)})

    async def stop(self) -> None:
        """See Adapter.stop."""
        if self._server is not None:
            await self._server.stop()

    @staticmethod
    async def _ask(server: AppServer, method: str, params: Mapping[str, Any]) -> Json:
        return await server.request(method, params, limit=_ANSWER)
