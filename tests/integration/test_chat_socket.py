"""The websocket client against a server that misbehaves in the ways a real one may: it speaks frames a test gives it.

The well-behaved server is the embedded chat (test_listener_mattermost.py); gaps, silence and floods need one that can
be told to lose, to be silent and to flood.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from agensh.clients import mattermost_ws
from agensh.clients.mattermost_ws import ChatSignal, MattermostSocket
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from tests.support.clock import ManualClock
from tests.support.queues import until


def hello(connection_id: str) -> dict[str, Any]:
    return {"event": "hello", "data": {"connection_id": connection_id, "server_version": "x"}, "seq": 0}


def posted(seq: int, post_id: str, **post: Any) -> dict[str, Any]:
    value = {"id": post_id, "channel_id": "c", "user_id": "u", "message": "m", "create_at": 1, "new": {}} | post
    return {
        "event": "posted",
        "data": {"post": json.dumps(value), "channel_type": "O", "channel_name": "task", "set_online": True},
        "broadcast": {"channel_id": "c"},
        "seq": seq,
    }


class Server:
    """Sends a test's frames and keeps what it is asked."""

    def __init__(self) -> None:
        self.queries: list[dict[str, list[str]]] = []
        self.tokens: list[str | None] = []
        self.connections: list[ServerConnection] = []
        self.greeting: list[dict[str, Any]] = [hello("first")]
        self.answer_pings = True
        self.ping_error = 0
        self.arrived = asyncio.Event()

    async def serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.queries.append(parse_qs(urlsplit(connection.request.path).query))
        self.tokens.append(connection.request.headers.get("Authorization"))
        self.connections.append(connection)
        await self.send(*self.greeting)
        self.arrived.set()
        while True:
            try:
                asked = json.loads(await connection.recv())
            except ConnectionClosed:
                return
            if self.ping_error:
                error = {"id": "api.web_socket_router.not_authenticated.app_error", "status_code": self.ping_error}
                await self.send({"status": "FAIL", "seq_reply": asked["seq"], "error": error})
            elif self.answer_pings:
                await self.send({"status": "OK", "seq_reply": asked["seq"], "data": {"text": "pong"}})

    async def send(self, *frames: dict[str, Any]) -> None:
        for frame in frames:
            await self.connections[-1].send(json.dumps(frame))


@asynccontextmanager
async def served(clock: Any = None) -> AsyncIterator[tuple[Server, MattermostSocket]]:
    server = Server()
    async with serve(server.serve, "127.0.0.1", 0) as running:
        port = next(iter(running.sockets)).getsockname()[1]
        async with MattermostSocket(f"http://127.0.0.1:{port}", "t0ken", clock or SystemClock()) as socket:
            yield server, socket


async def take(signals: AsyncIterator[ChatSignal], count: int) -> list[str]:
    """The next signals as words: their kind and, of a post, its id."""
    async with asyncio.timeout(10):
        found = [await anext(signals) for _ in range(count)]
    return [signal.kind + (f" {signal.post.id}" if signal.post else "") for signal in found]


async def test_the_token_is_a_header_and_a_resume_asks_for_the_next_number() -> None:
    async with served() as (server, socket):
        await socket.connect()
        signals = socket.signals()
        assert await take(signals, 1) == ["fresh"]
        await server.send(posted(1, "a"), {"event": "typing", "data": {}, "seq": 2}, posted(3, "b"))
        assert await take(signals, 2) == ["posted a", "posted b"]
        await server.connections[-1].close()
        with pytest.raises(ServiceError):
            await anext(signals)
        server.greeting = [posted(4, "c")]
        await socket.connect()
        assert await take(socket.signals(), 2) == ["posted c", "resumed"]
        assert server.tokens == ["Bearer t0ken", "Bearer t0ken"]
        assert server.queries == [{}, {"connection_id": ["first"], "sequence_number": ["4"]}]


async def test_a_server_that_forgot_the_connection_is_told_apart() -> None:
    async with served() as (server, socket):
        await socket.connect()
        assert await take(socket.signals(), 1) == ["fresh"]
        await server.connections[-1].close()
        server.greeting = [hello("second")]
        await socket.connect()
        assert await take(socket.signals(), 1) == ["fresh"]
        await server.send(posted(1, "a"))
        assert await take(socket.signals(), 1) == ["posted a"]


async def test_a_jump_in_the_numbers_is_a_gap() -> None:
    async with served() as (server, socket):
        await socket.connect()
        signals = socket.signals()
        await take(signals, 1)
        await server.send(posted(1, "a"), posted(5, "b"), posted(6, "c"), posted(6, "c"))
        assert await take(signals, 5) == ["posted a", "gap", "posted b", "posted c", "posted c"]


async def test_what_was_not_taken_survives_a_cut() -> None:
    async with served() as (server, socket):
        await socket.connect()
        await server.arrived.wait()
        await server.send(posted(1, "a"), posted(2, "b"))
        first = socket.signals()
        assert await take(first, 1) == ["fresh"]
        await server.connections[-1].close()
        server.greeting = []
        await socket.connect()
        assert await take(socket.signals(), 3) == ["posted a", "posted b", "resumed"]


async def test_a_flood_becomes_a_gap_and_the_reader_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mattermost_ws, "QUEUE_LIMIT", 10)
    async with served() as (server, socket):
        await socket.connect()
        await server.arrived.wait()
        for seq in range(1, 1001):
            await server.send(posted(seq, f"p{seq}"))
        found: list[str] = []

        async def collect() -> None:
            signals = socket.signals()
            while "posted last" not in found:
                found.extend(await take(signals, 1))

        collecting = asyncio.create_task(collect())
        # One that comes while the consumer is behind is dropped as well, so it is sent until one gets through.
        for seq in range(1001, 2001):
            await server.send(posted(seq, "last"))
            done, _ = await asyncio.wait({collecting}, timeout=0.01)
            if done:
                break
        await collecting
        assert "gap" in found
        assert "posted p1" not in found, "what the gap stands for is dropped"


async def test_an_unanswered_ping_ends_the_connection() -> None:
    clock = ManualClock()
    async with served(clock) as (server, socket):
        server.answer_pings = False
        await socket.connect()
        signals = socket.signals()
        assert await take(signals, 1) == ["fresh"]
        async with asyncio.timeout(10):
            await until(lambda: clock.sleeping > 0, "the ping was sent")
            await clock.advance(mattermost_ws.PONG_WAIT + 1)
            with pytest.raises(ServiceError, match="no answer to a ping within 10 s"):
                await anext(signals)
        await server.connections[-1].wait_closed()
        assert server.connections[-1].close_code == 4000


async def test_a_dead_session_is_said() -> None:
    async with served() as (server, socket):
        server.greeting, server.ping_error = [], 401
        await socket.connect()
        signals = socket.signals()
        assert await take(signals, 1) == ["dead_session"]
        with pytest.raises(ServiceError, match="the session is not valid any more"):
            await anext(signals)


async def test_odd_frames_are_passed_over() -> None:
    async with served() as (server, socket):
        await socket.connect()
        signals = socket.signals()
        await take(signals, 1)
        await server.connections[-1].send("not json")
        for odd in (
            "[1]",
            "7",
            "null",
            '"event"',
            '{"event":"posted","seq":"x"}',
            '{"event":"hello","data":[1],"seq":0}',
        ):
            await server.connections[-1].send(odd)
        await server.send(
            {"event": "posted", "data": {"post": "{"}, "seq": 1},
            {"event": "posted", "data": {}, "seq": 2},
            {"event": "brand_new", "seq": 3},
            {"other": 1},
            {"event": "direct_added", "data": {"teammate_id": "t"}, "broadcast": {"channel_id": "d"}, "seq": 4},
        )
        async with asyncio.timeout(10):
            signal = await anext(signals)
        assert (signal.kind, signal.channel_id) == ("direct_added", "d")


async def test_a_port_without_a_server_is_a_service_error() -> None:
    socket = MattermostSocket("http://127.0.0.1:9", "t", SystemClock())
    with pytest.raises(ServiceError, match="websocket did not answer"):
        await socket.connect()
    with pytest.raises(ServiceError, match="it is not connected"):
        await anext(socket.signals())
