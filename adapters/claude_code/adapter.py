"""Drives Claude Code over its stream-json protocol: one process a session, one result a turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from adapters.base import (
    Adapter,
    HarnessUnavailable,
    Outcome,
    SessionLost,
    Text,
    ToolActivity,
    TurnEnd,
    TurnItem,
)
from adapters.binary import program
from adapters.claude_code import launching, wire
from adapters.claude_code.connection import Connection, Ended
from adapters.claude_code.hooks import Hooks
from adapters.claude_code.outcome import asked_to_wait, turn_end
from adapters.options import check_options
from agensh.harnesses import package

_START = 120.0  # seconds until it answers, our MCP endpoint included, which it waits for; 64 may start at once
_INTERRUPT = 15.0  # seconds a turn may take to end once it was interrupted
_PATIENCE = 10.0  # seconds of a pause for the provider that are spent inside a turn; longer ones are the dispatcher's
_LOST = "No conversation found"


@dataclass
class _Turn:
    """What is known of the running turn."""

    message_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The prompt's id."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    worked: bool = False
    category: str = ""
    retry: wire.Retry | None = None
    interrupted: bool = False
    tools_missing: str = ""
    """Why none of our tools is there; empty while they are."""
    pausing: wire.Retry | None = None
    """The pause that is too long to be spent here."""

    def end(self, result: wire.Result) -> TurnEnd:
        """Return how the turn ended."""
        if self.tools_missing:
            return TurnEnd(Outcome.TOOLS_MISSING, self.tools_missing, usage=result.usage)
        if self.pausing is not None and not self.interrupted:
            return asked_to_wait(self.pausing, result)
        return turn_end(
            result, category=self.category, retry=self.retry, worked=self.worked, interrupted=self.interrupted
        )


class ClaudeCodeAdapter(Adapter):
    """One worker's Claude Code. Options: `binary` or `packages` (where it is), `stall_seconds` (of a silent stream)."""

    name: ClassVar[str] = "claude-code"

    _connection: Connection | None = None
    _hooks: Hooks | None = None
    _turn: _Turn | None = None

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """See Adapter.check."""
        del kind
        check_options(cls.name, options, launching.OPTIONS)

    async def start(self, session: str | None = None) -> str:
        """Start the CLI; see Adapter.start. It is ready once it has answered the initialize request."""
        chosen = _session_id(session)
        launch = self.launch
        command = launching.command(
            launch,
            str(program(launch, package("@anthropic-ai/claude-code"), "claude")),
            await asyncio.to_thread(launching.write_config, launch),
            session=chosen,
            resume=session is not None,
        )
        process = await self.runtime.spawn(command, env=launching.environment(launch), cwd=launch.work, log=launch.log)
        hooks = self._hooks = Hooks(launch)
        connection = self._connection = Connection(process, hooks)
        try:
            async with asyncio.timeout(_START):
                answer = await connection.request("initialize", wire.hook_fields(hooks.events))
            if answer.error:
                raise HarnessUnavailable(f"Claude Code refuses to be driven: {answer.error}.")
        except Ended as ended:
            await self.stop()
            if session is not None and ended.result is not None and _LOST in ended.result.text:
                raise SessionLost(f"Claude Code does not know the session {session} any more.") from None
            said = f": {ended.result.text}" if ended.result is not None else ""
            raise HarnessUnavailable(f"Claude Code ended at its start{said}; see {launch.log}.") from None
        except TimeoutError:
            await self.stop()
            raise HarnessUnavailable(f"Claude Code said nothing for {_START:g} s; see {launch.log}.") from None
        except BaseException:
            await self.stop()
            raise
        return chosen

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """Send one prompt; see Adapter.turn."""
        connection = self._connection
        if connection is None:
            yield TurnEnd(Outcome.CRASHED, "The CLI is not running.")
            return
        turn = self._turn = _Turn()
        items = connection.open_turn()
        try:
            await connection.send(wire.user_line(prompt, turn.message_id))
            while (item := await items.get()) is not None:
                match item:
                    case Text() | ToolActivity():
                        turn.worked = True
                        yield item
                    case wire.Result() if not item.by_itself:
                        turn.ended.set()
                        yield turn.end(item)
                        return
                    case wire.Dropped() if item.message_id == turn.message_id:
                        turn.ended.set()
                        yield TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted before it began.")
                        return
                    case _:
                        await self._note(turn, item, connection)
            reason = f"Claude Code ended with {await connection.end()} in the middle of a turn."
        except BrokenPipeError:
            reason = f"Claude Code ended with {await connection.end()} before the turn."
        finally:
            turn.ended.set()
            connection.close_turn()
            self._turn = None
        yield TurnEnd(Outcome.INTERRUPTED if turn.interrupted else Outcome.CRASHED, reason)

    async def _note(self, turn: _Turn, item: wire.Item, connection: Connection) -> None:
        match item:
            case wire.Begun():
                turn.tools_missing = _missing(item) if self.launch.mcp_url else ""
                if turn.tools_missing:
                    await _end_early(connection)
            case wire.Failed():
                turn.category = item.category
            case wire.Retry():
                turn.retry = item
                if item.seconds > _PATIENCE:
                    turn.pausing = item
                    await _end_early(connection)

    async def interrupt(self) -> None:
        """End the running turn; a CLI that does not within 15 s is stopped. See Adapter.interrupt."""
        connection, turn = self._connection, self._turn
        if connection is None or turn is None or turn.ended.is_set():
            return
        turn.interrupted = True
        try:
            async with asyncio.timeout(_INTERRUPT):
                # Also a prompt that still waits for its turn.
                await connection.request("interrupt", {"cancel_queued": True})
                await turn.ended.wait()
        except Ended:
            return
        except TimeoutError:
            await connection.process.stop()

    async def stop(self) -> None:
        """End the CLI and all its children. Safe to call twice."""
        connection, self._connection = self._connection, None
        hooks, self._hooks = self._hooks, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            if hooks is not None:
                await hooks.close()


async def _end_early(connection: Connection) -> None:
    """Ask for the end of the turn; its result comes as that of any other."""
    await connection.send(wire.request_line(uuid.uuid4().hex, "interrupt", {}))


def _session_id(session: str | None) -> str:
    if session is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(session))
    except ValueError:
        raise SessionLost(f"{session!r} is no session of Claude Code.") from None


def _missing(begun: wire.Begun) -> str:
    state = begun.servers.get(launching.SERVER, "not there")
    if state != "connected":
        return f"Claude Code did not connect to our MCP endpoint: it is {state}."
    if not any(tool.startswith(f"mcp__{launching.SERVER}__") for tool in begun.tools):
        return "Claude Code connected to our MCP endpoint, but took none of its tools."
    return ""
