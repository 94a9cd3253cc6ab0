"""The client's side of the Agent Client Protocol: JSON-RPC, one message a line, over the stdio of an agent's process.

Lines are read while a call waits for its answer, by the task that waits; what an agent says between two calls stays in
the pipe until `drain` or the next call. One call runs at a time; `notify` may come from another task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from adapters.base import Process
from agensh.errors import AgenshError

Json = dict[str, Any]
_NO_SUCH_METHOD = -32601


class AgentEnded(AgenshError):
    """The agent's process has ended, or speaks no JSON-RPC."""


class CallFailed(AgenshError):
    """The agent answered a call with an error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class Silence(AgenshError):
    """The agent said nothing for longer than it may."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the call of a `stream`: its last item."""

    result: Json


class AcpClient:
    """A connection to one agent.

    `answer` takes the method and the parameters of a request of the agent's and returns the result, None for a method
    that there is not.
    """

    def __init__(self, process: Process, answer: Callable[[str, Json], Json | None]) -> None:
        self.process = process
        self._answer = answer
        self._calls = 0

    async def call(self, method: str, params: Json) -> Json:
        """Return the result of a call; CallFailed, or AgentEnded. What the agent reports meanwhile is dropped."""
        async for item in self.stream(method, params):
            if isinstance(item, Answer):
                return item.result
        raise AssertionError("a stream ends with its answer")

    async def stream(
        self, method: str, params: Json, patience: Callable[[], float | None] = lambda: None
    ) -> AsyncIterator[Json | Answer]:
        """Call a method; yield the updates of the session that come, at last the answer.

        `patience` says before each wait how many seconds of silence are too many: Silence. CallFailed, AgentEnded.
        """
        self._calls += 1
        number = self._calls
        await self._send({"id": number, "method": method, "params": params})
        while True:
            try:
                async with asyncio.timeout(patience()):
                    message = await self._receive()
            except TimeoutError:
                raise Silence from None
            if "method" in message:
                update = await self._heard(message)
                if update is not None:
                    yield update
            elif message.get("id") == number:
                yield Answer(_result(message))
                return

    async def late_answer(self) -> Json:
        """Wait for the answer to a call that met with Silence; CallFailed, AgentEnded."""
        while (message := await self._receive()).get("id") != self._calls or "method" in message:
            if "method" in message:
                await self._heard(message)
        return _result(message)

    async def drain(self) -> None:
        """Take in what the agent has said already, without waiting for more."""
        while True:
            try:
                async with asyncio.timeout(0):
                    message = await self._receive()
            except TimeoutError:
                return
            if "method" in message:
                await self._heard(message)

    async def notify(self, method: str, params: Json) -> None:
        """Tell the agent something that has no answer; AgentEnded."""
        await self._send({"method": method, "params": params})

    async def _heard(self, message: Json) -> Json | None:
        """Return the update in a message of the agent's own, None for any other; requests are answered."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" in message:
            result = self._answer(str(message["method"]), params)
            if result is None:
                error = {"code": _NO_SUCH_METHOD, "message": f"{message['method']} is not offered."}
                await self._send({"id": message["id"], "error": error})
            else:
                await self._send({"id": message["id"], "result": result})
            return None
        update = params.get("update") if message["method"] == "session/update" else None
        return update if isinstance(update, dict) else None

    async def _send(self, message: Json) -> None:
        try:
            await self.process.write_line(json.dumps({"jsonrpc": "2.0", **message}))
        except BrokenPipeError as error:
            raise AgentEnded from error

    async def _receive(self) -> Json:
        while True:
            try:
                line = await self.process.read_line()
            except ValueError as error:
                raise AgentEnded(str(error)) from error
            if line is None:
                raise AgentEnded
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a warning of the runtime it is written in
            if isinstance(message, dict):
                return message


def _result(message: Json) -> Json:
    error = message.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        raise CallFailed(code if isinstance(code, int) else 0, str(error.get("message", "")), error.get("data"))
    result = message.get("result")
    return result if isinstance(result, dict) else {}
