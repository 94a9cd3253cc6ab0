"""Lines that a CLI may write on its protocol's channel and that are no message of it: they are passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.client import AcpClient
from adapters.codex.app_server import AppServer

DEEP = "[" * 200_000 + "]" * 200_000
STRAY = ["a warning", "", DEEP, "[1]", '"text"', '{"id":[1],"result":{}}', '{"id":{"x":1},"result":{}}', '{"id":99}']


class Told:
    """A process that has said its lines already and takes every line."""

    pid = 1

    def __init__(self, lines: list[str]) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.given = lines

    async def write_line(self, _line: str) -> None:
        for line in self.given:
            self.lines.put_nowait(line)

    async def read_line(self) -> str | None:
        return await self.lines.get()

    async def stop(self, grace: float = 5.0) -> None:
        del grace


@pytest.mark.parametrize("stray", STRAY, ids=range(len(STRAY)))
async def test_a_stray_line_costs_neither_the_connection_nor_the_answer(tmp_path: Path, stray: str) -> None:
    process: Any = Told([stray, '{"id":1,"result":{"found":true}}'])
    async with asyncio.timeout(20):
        server = AppServer(process)
        assert await server.request("x", {}, limit=10.0) == {"found": True}
        await server.stop()
        client = AcpClient(process, lambda _method, _params: None)
        assert await client.call("x", {}) == {"found": True}
