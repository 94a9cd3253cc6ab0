"""The HTTP of a load generator: one kept connection for a worker, as its CLI holds one, and nothing that costs.

A generator shares its cores with what it measures. A client with a pool looks at every connection of it for every
request: with 512 workers that took more time than the node hosts themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

PATIENCE = 120.0  # seconds for one answer; the shortest limit of the harnesses is about 180 s
LARGEST = 8 * 1024 * 1024  # bytes of one answer


class WireError(Exception):
    """No answer came, or none that can be read."""


class Wire:
    """One connection to one service; a request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a connection that the next request can use."""
        return self._reader is not None and not self._reader.at_eof()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a POST and return status and body; WireError when that fails, and then it may have taken effect."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._host}:{self._port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await self._connection()
                writer.write(request)
                return await self._answer(reader)
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError) as error:
            await self.close()
            raise WireError(f"{type(error).__name__} {error}".strip()) from error

    async def close(self) -> None:
        """Close the connection; the next request opens another."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.kept:
            await self.close()  # the server may have ended it in the meantime
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self._reader, self._writer

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(fields.get("content-length", "-1"))
        if not 0 <= size <= LARGEST:
            raise ValueError(f"an answer of {fields.get('content-length', 'unknown')} bytes cannot be read")
        body = await reader.readexactly(size)
        if fields.get("connection", "").lower() == "close":
            await self.close()
        return int(first.split(" ", 2)[1]), body
