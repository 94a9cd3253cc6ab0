"""The worker's MCP tools, through the official client, over streamable HTTP with a bearer token.

A result's first line is `key=value` words, then prose; what the router appends under its header are notices.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from adapters.base import ToolActivity
from adapters.scripted.reading import Notice, fields_of, split_notices
from adapters.scripted.wire import SUMMARY_CAP
from agensh.clock import Clock
from agensh.errors import AgenshError

CALL_LIMIT = 120.0  # seconds of one tool call; a merge waits for the forge's own checks
_ATTEMPTS = 4
_BACK_OFF = 0.5  # seconds, doubled


class ToolsUnavailable(AgenshError):
    """The MCP endpoint does not answer."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    ok: bool
    text: str
    """Without the notices."""
    fields: dict[str, str] = field(default_factory=dict)
    """The words of the first line."""

    def number(self, name: str) -> int:
        """Return a field as a number, 0 when there is none."""
        value = self.fields.get(name, "")
        return int(value) if value.isdigit() else 0


class Tools(ABC):
    """The worker's tools."""

    @abstractmethod
    async def call(self, tool: str, **arguments: Any) -> Result:
        """Call a tool. A refusal is a result that is not ok; ToolsUnavailable when no answer comes after retries."""


class McpTools(Tools):
    """An open connection to the worker's endpoint. Every call is reported, and its notices are handed on."""

    def __init__(
        self,
        url: str,
        token: str,
        report: Callable[[ToolActivity], None],
        notice: Callable[[Notice], None],
        clock: Clock,
    ) -> None:
        self._url = url
        self._token = token
        self._report = report
        self._notice = notice
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def call(self, tool: str, **arguments: Any) -> Result:
        """See Tools.call."""
        call_id = f"mcp{next(self._ids)}"
        wait = _BACK_OFF
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                client = await self._connected()
                answer = await client.call_tool(tool, arguments, read_timeout_seconds=CALL_LIMIT)
                break
            except (MCPError, httpx2.HTTPError, OSError, ExceptionGroup) as error:
                await self._drop()
                if attempt == _ATTEMPTS:
                    self._report(ToolActivity(call_id, tool, "mcp", str(error)[:SUMMARY_CAP], ok=False))
                    raise ToolsUnavailable(f"{tool}: the MCP endpoint gave no answer: {error}.") from error
                await self._clock.sleep(wait)
                wait *= 2
        texts = [block.text for block in answer.content if block.type == "text"]
        own, notices = split_notices("\n".join(texts))
        result = Result(not answer.is_error, own, fields_of(own))
        self._report(ToolActivity(call_id, tool, "mcp", own[:SUMMARY_CAP], ok=result.ok))
        for notice in notices:
            self._notice(notice)
        return result

    async def _connected(self) -> Client:
        if self._client is None:
            http = httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {self._token}"}, timeout=httpx2.Timeout(30, read=CALL_LIMIT + 10)
            )
            await self._stack.enter_async_context(http)
            transport = streamable_http_client(self._url, http_client=http)
            self._client = await self._stack.enter_async_context(Client(transport, mode="auto"))
        return self._client

    async def _drop(self) -> None:
        self._client = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
