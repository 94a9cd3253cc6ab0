"""Drives the rule-based CLI (`python -m adapters.scripted`) over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import ClassVar

from adapters.base import Adapter, HarnessUnavailable, Outcome, Process, SessionLost, TurnEnd, TurnItem, end_of
from adapters.scripted import wire
from agensh.errors import UsageError

_START = 60.0  # seconds the CLI may take to say that it is ready; a loaded machine starts 64 of them at once
_INTERRUPT = 15.0  # seconds a turn may take to end once it was interrupted


class ScriptedAdapter(Adapter):
    """One scripted worker. Options: `playbook`, the folder with the bundled implementations."""

    name: ClassVar[str] = "scripted"
    needs_tools: ClassVar[bool] = True

    _process: Process | None = None
    _in_turn: asyncio.Event | None = None
    _interrupted = False

    @classmethod
    def check(cls, kind: str, options: Mapping[str, str]) -> None:
        """See Adapter.check: rule-based workers rebuild, and bring what they know in a playbook."""
        if kind != "rebuild":
            raise UsageError(
                f'task.kind: {kind!r} is not for the scripted harness, which follows a playbook; it takes "rebuild".'
            )
        if "playbook" not in options:
            raise UsageError("worker.options.playbook: missing; the scripted harness needs the folder of a playbook.")
        unknown = sorted(set(options) - {"playbook"})
        if unknown:
            raise UsageError(f"worker.options.{unknown[0]}: no such option of the scripted harness; it has: playbook.")

    async def start(self, session: str | None = None) -> str:
        """Start the CLI; see Adapter.start."""
        playbook = self.launch.options["playbook"]
        chosen = session or uuid.uuid4().hex
        # -P: a file of the worker's repository must not stand in for a module of ours.
        command = [sys.executable, "-P", "-m", "adapters.scripted", "--playbook", playbook]
        command += ["--resume" if session else "--session", chosen]
        env = {
            **self.launch.env,
            "HOME": str(self.launch.home),
            "TMPDIR": str(self.launch.tmp),
            "AGENSH_MCP_URL": self.launch.mcp_url,
            "AGENSH_MCP_TOKEN": self.launch.mcp_token,
        }
        process = await self.runtime.spawn(command, env=env, cwd=self.launch.work, log=self.launch.log)
        try:
            async with asyncio.timeout(_START):
                await self._wait_ready(process)
        except TimeoutError:
            await process.stop()
            raise HarnessUnavailable(
                f"The scripted CLI said nothing for {_START:g} s; see {self.launch.log}."
            ) from None
        except BaseException:
            await process.stop()
            raise
        self._process = process
        return chosen

    async def _wait_ready(self, process: Process) -> None:
        while (line := await process.read_line()) is not None:
            data = wire.parse(line)
            if data.get("type") == "ready":
                return
            if data.get("type") == "error":
                message = str(data.get("message"))
                raise SessionLost(message) if data.get("code") == wire.SESSION_LOST else HarnessUnavailable(message)
        code = await end_of(process)
        raise HarnessUnavailable(f"The scripted CLI ended with {code} at its start; see {self.launch.log}.")

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """Send one prompt; see Adapter.turn."""
        process = self._process
        if process is None:
            yield TurnEnd(Outcome.CRASHED, "The CLI is not running.")
            return
        ended = self._in_turn = asyncio.Event()
        self._interrupted = False
        try:
            await process.write_line(json.dumps({"type": "turn", "prompt": prompt}))
            while (line := await process.read_line()) is not None:
                item = wire.decode(line)
                if item is None:
                    continue
                if isinstance(item, TurnEnd):
                    ended.set()
                    yield item
                    return
                yield item
            reason = f"The CLI ended with {await end_of(process)} in the middle of a turn."
        except BrokenPipeError:
            reason = f"The CLI ended with {await end_of(process)} before the turn."
        finally:
            ended.set()
            self._in_turn = None
        yield TurnEnd(Outcome.INTERRUPTED if self._interrupted else Outcome.CRASHED, reason)

    async def interrupt(self) -> None:
        """End the running turn; a CLI that does not within 15 s is stopped. See Adapter.interrupt."""
        process, ended = self._process, self._in_turn
        if process is None or ended is None or ended.is_set():
            return
        self._interrupted = True
        try:
            await process.write_line(json.dumps({"type": "interrupt"}))
            await asyncio.wait_for(ended.wait(), _INTERRUPT)
        except BrokenPipeError:
            return
        except TimeoutError:
            await process.stop()

    async def stop(self) -> None:
        """End the CLI and all its children. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            await process.stop()
