"""The HTTP of a load generator: one kept connection, opened again when the server has ended it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agensh.rehearse.wire import Wire, WireError
from tests.support.queues import until


class Server:
    """Answers each request with `answers` in turn and remembers what it got."""

    def __init__(self, *answers: bytes, hang_up: bool = False) -> None:
        self.answers = list(answers)
        self.hang_up = hang_up
        self.connections = 0
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                writer.write(self.answers.pop(0))
                if self.hang_up:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Wire]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    wire = Wire(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp/w")
    try:
        yield wire
    finally:
        await wire.close()
        listening.close()
        await listening.wait_closed()


def answer(body: bytes, *more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", ""]).encode() + body


async def test_requests_share_a_connection() -> None:
    server = Server(answer(b"one"), answer(b"two", status="429 Too Many Requests"))
    async with running(server) as wire:
        assert await wire.post("/a", b"x", {"Authorization": "Bearer t"}) == (200, b"one")
        assert await wire.post("/a", b"yy", {}) == (429, b"two")
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer t\r\n" in server.requests[0]
    assert server.requests[1].endswith(b"\r\n\r\nyy")


@pytest.mark.parametrize("more", [("Connection: close",), ()])
async def test_a_connection_that_the_server_ends_is_opened_again(more: tuple[str, ...]) -> None:
    server = Server(answer(b"one", *more), answer(b"two"), hang_up=True)
    async with running(server) as wire:
        assert await wire.post("/a", b"", {}) == (200, b"one")
        await until(lambda: not wire.kept, "the end of the connection")
        assert await wire.post("/a", b"", {}) == (200, b"two")
    assert server.connections == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"", "IncompleteReadError"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "ValueError an answer of unknown bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "ValueError an answer of 99999999 bytes"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error(words: bytes, reason: str) -> None:
    server = Server(words, hang_up=True)
    async with running(server) as wire:
        with pytest.raises(WireError, match=reason):
            await wire.post("/a", b"", {})


async def test_no_server_is_an_error() -> None:
    with pytest.raises(WireError, match="ConnectionRefusedError"):
        await Wire("http://127.0.0.1:1").post("/a", b"", {})
