"""A bare websocket client: nothing is done for the test that it did not ask for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE = 15.0
"""Seconds a test waits for a frame."""


class Listener:
    """One connection; frames come as dicts."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._seq = 0

    async def frame(self) -> dict[str, Any]:
        """Return the next frame."""
        async with asyncio.timeout(PATIENCE):
            frame: dict[str, Any] = json.loads(await self.connection.recv())
        return frame

    async def rest(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the frames that come until the connection ends."""
        try:
            while True:
                yield await self.frame()
        except ConnectionClosed:
            return

    async def event(self, name: str) -> dict[str, Any]:
        """Return the next event of that name, passing over others."""
        while True:
            frame = await self.frame()
            if frame.get("event") == name:
                return frame

    async def ask(self, action: str, data: dict[str, Any] | None = None) -> int:
        """Send an action; return its number."""
        self._seq += 1
        await self.connection.send(json.dumps({"seq": self._seq, "action": action, "data": data or {}}))
        return self._seq

    async def until_pong(self) -> list[dict[str, Any]]:
        """Ping, and return the events that came before the answer."""
        number = await self.ask("ping")
        events: list[dict[str, Any]] = []
        while True:
            frame = await self.frame()
            if frame.get("seq_reply") == number:
                assert frame["data"]["text"] == "pong"
                return events
            events.append(frame)

    async def closed(self) -> tuple[int, str]:
        """Wait until the server closes; return the code seen (1006: without a close frame, 1005: an empty one)."""
        async with asyncio.timeout(PATIENCE):
            await self.connection.wait_closed()
        return self.connection.close_code or 0, self.connection.close_reason or ""

    def abort(self) -> None:
        """Lose the TCP connection without a word."""
        self.connection.transport.abort()


@asynccontextmanager
async def listening(url: str, token: str = "", **more: Any) -> AsyncIterator[Listener]:
    """Connect; `query` is appended to the address, `headers` are added."""
    headers = dict(more.pop("headers", {}))
    if token:
        headers["Authorization"] = f"Bearer {token}"
    address = url.replace("http", "ws", 1) + "/api/v4/websocket" + more.pop("query", "")
    async with connect(
        address, additional_headers=headers, compression=None, max_size=16 * 2**20, ping_interval=None, **more
    ) as connection:
        yield Listener(connection)
