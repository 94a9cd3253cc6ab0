"""The line protocol of `codex app-server`: JSON-RPC without its version field, one message a line.

`codex app-server generate-json-schema --out FOLDER` prints the schema of a version.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from adapters.base import Process

Json = dict[str, Any]
log = logging.getLogger(__name__)

_NO_SUCH_METHOD = -32601  # JSON-RPC 2.0, section 5.1


class RequestRefused(Exception):
    """The server answered a request with an error."""


class ServerGone(Exception):
    """The server ended; nothing more can be asked of it."""


class AppServer:
    """A running app-server. Requests may overlap; what the server says by itself is read with `notification`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._said: asyncio.Queue[Json | None] = asyncio.Queue()
        self._ended = False
        self._reader = asyncio.create_task(self._read())

    async def request(self, method: str, params: Mapping[str, Any], *, limit: float) -> Json:
        """Ask and return the result; RequestRefused, ServerGone, or TimeoutError after `limit` seconds."""
        if self._ended:
            raise ServerGone
        self._number += 1
        number = self._number
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send({"id": number, "method": method, "params": params})
            async with asyncio.timeout(limit):
                return await answer
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str) -> None:
        """Tell the server something; ServerGone when it has ended."""
        await self._send({"method": method})

    async def notification(self) -> Json | None:
        """Return the next notification, None once the server has ended."""
        if self._ended and self._said.empty():
            return None
        return await self._said.get()

    def forget(self) -> None:
        """Drop the notifications that nobody has read."""
        while not self._said.empty():
            self._said.get_nowait()

    async def stop(self) -> None:
        """End the process with all it started. Safe to call twice."""
        try:
            await self.process.stop()
        finally:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._close()

    async def _send(self, message: Json) -> None:
        try:
            await self.process.write_line(json.dumps(message, ensure_ascii=False))
        except BrokenPipeError as error:
            raise ServerGone from error

    async def _read(self) -> None:
        try:
            while (line := await self.process.read_line()) is not None:
                await self._take(line)
        except (ValueError, ServerGone) as error:
            log.warning("app-server cannot be read", extra={"pid": self.process.pid, "error": str(error)})
        finally:
            self._close()

    async def _take(self, line: str) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return  # a stray line of a library, such as a warning
        if not isinstance(message, dict):
            return
        if "method" not in message:
            self._answered(message)
        elif "id" in message:
            # It asks its client for something (approvals, forms): nothing that a worker without a person has.
            refusal = {"code": _NO_SUCH_METHOD, "message": f"{message['method']}: nobody is here to answer."}
            await self._send({"id": message["id"], "error": refusal})
        else:
            self._said.put_nowait(message)

    def _answered(self, message: Json) -> None:
        number = message.get("id")
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        error = message.get("error")
        if isinstance(error, dict):
            answer.set_exception(RequestRefused(str(error.get("message", error))))
        else:
            answer.set_result(message.get("result") or {})

    def _close(self) -> None:
        if self._ended:
            return
        self._ended = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ServerGone())
        self._said.put_nowait(None)
