"""One running Claude Code: its lines are read all the time, also between turns, for it may ask at any time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

from adapters.base import Process, end_of
from adapters.claude_code import wire
from adapters.claude_code.hooks import Hooks


class Ended(Exception):
    """The CLI has ended; `result` is its last word, when it had one."""

    def __init__(self, result: wire.Result | None) -> None:
        super().__init__("Claude Code has ended.")
        self.result = result


class Connection:
    """Sends lines, answers what the CLI asks, and hands everything else to the turn that runs."""

    def __init__(self, process: Process, hooks: Hooks) -> None:
        self.process = process
        self._hooks = hooks
        self._reader = wire.Reader()
        self._waiting: dict[str, asyncio.Future[wire.Answered | None]] = {}
        self._turn: asyncio.Queue[wire.Item | None] | None = None
        self._last: wire.Result | None = None
        self._ended = False
        self._task = asyncio.create_task(self._read(), name=f"claude-code {process.pid}")

    async def request(self, subtype: str, fields: Mapping[str, object] | None = None) -> wire.Answered:
        """Send a control request and return the answer; Ended when the CLI ends before it answers."""
        if self._ended:
            raise Ended(self._last)
        request_id = uuid.uuid4().hex
        future: asyncio.Future[wire.Answered | None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            await self.process.write_line(wire.request_line(request_id, subtype, fields or {}))
            answer = await future
        except BrokenPipeError:
            # What it said before it went is still to be read.
            await asyncio.wait([self._task])
            answer = None
        finally:
            self._waiting.pop(request_id, None)
        if answer is None:
            raise Ended(self._last)
        return answer

    async def send(self, line: str) -> None:
        """Send a line; BrokenPipeError when the CLI is gone."""
        await self.process.write_line(line)

    def open_turn(self) -> asyncio.Queue[wire.Item | None]:
        """Return where the items of the coming turn arrive; None is the end of the CLI."""
        self._turn = asyncio.Queue()
        if self._ended:
            self._turn.put_nowait(None)
        return self._turn

    def close_turn(self) -> None:
        """Pass over what comes from now on."""
        self._turn = None

    async def end(self) -> int:
        """Return the exit code of a CLI that says no more."""
        return await end_of(self.process)

    async def close(self) -> None:
        """End the CLI with all it started, then the reading."""
        try:
            await self.process.stop()
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            while (line := await self.process.read_line()) is not None:
                for item in self._reader.read(line):
                    await self._take(item)
        except ValueError:
            # A line above the limit of the runtime: there is no way back to the beginning of the next one.
            pass
        finally:
            self._ended = True
            if self._turn is not None:
                self._turn.put_nowait(None)
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)

    async def _take(self, item: wire.Item) -> None:
        match item:
            case wire.Asked():
                await self._answer(item)
            case wire.Answered():
                future = self._waiting.get(item.request_id)
                if future is not None and not future.done():
                    future.set_result(item)
            case _:
                if isinstance(item, wire.Result):
                    self._last = item
                if self._turn is not None:
                    self._turn.put_nowait(item)

    async def _answer(self, asked: wire.Asked) -> None:
        if asked.subtype == "hook_callback":
            line = wire.answer_line(asked.request_id, await self._hooks.ask(asked.callback))
        else:
            line = wire.refusal_line(asked.request_id, f"{asked.subtype}: nobody is here to answer that.")
        try:
            await self.send(line)
        except BrokenPipeError:
            return  # it has ended; the next line read says so
