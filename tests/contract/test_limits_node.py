"""What one worker may ask of its MCP endpoint: how often, how much, how slowly; and the servers' own bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from agensh.clock import SystemClock
from agensh.ratelimit import Rate
from agensh.serving import make_server, open_socket
from router.mcp.requests import BODY_LIMIT
from router.mcp.server import CALL_RATE, create_mcp_app
from router.tools.registry import Call, Tool
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
ONE, TWO = "demo-worker1", "demo-worker2"
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def _pong(call: Call[Any]) -> str:
    return "pong"


TOOLS: tuple[Tool[Any], ...] = (Tool("ping", "Answers.", (), _pong),)
Ask = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def host() -> Ask:
    @asynccontextmanager
    async def start(rate: Rate = CALL_RATE) -> AsyncIterator[httpx.AsyncClient]:
        workers = {name: StubWorker(name, CLOCK) for name in (ONE, TWO)}
        async with (
            serving(create_mcp_app(workers, clock=CLOCK, tools=TOOLS, rate=rate)) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http,
        ):
            yield http

    return start


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def bearer(name: str) -> dict[str, str]:
    return HEADERS | {"Authorization": f"Bearer token-of-{name}"}


async def test_a_worker_that_calls_too_much_waits_and_nobody_else_does(host: Ask) -> None:
    async with host(Rate(0.1, 3)) as http:
        for _ in range(2):
            assert (await http.post(f"/mcp/{ONE}", json=LIST, headers=bearer(ONE))).status_code == 200
        assert (await http.get(f"/pending/{ONE}", headers=bearer(ONE))).status_code == 200
        for refused in (
            await http.post(f"/mcp/{ONE}", json=LIST, headers=bearer(ONE)),
            await http.get(f"/pending/{ONE}", headers=bearer(ONE)),
        ):
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 10
            message = "Too many requests: 0.1 a second are allowed in the long run; wait."
            assert refused.json() == {"error": message}
        assert (await http.post(f"/mcp/{TWO}", json=LIST, headers=bearer(TWO))).status_code == 200
        # Who holds no token of the worker cannot use its bucket up.
        for _ in range(5):
            assert (await http.post(f"/mcp/{TWO}", json=LIST, headers=bearer(ONE))).status_code == 403
        assert (await http.post(f"/mcp/{TWO}", json=LIST, headers=bearer(TWO))).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
        b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"tools/list"}',
        b"\xff\xfe",
        b"",
        b"[]",
        b"null",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ping","arguments":[1]}}',
        b'{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    ],
    ids=["deep lists", "deep objects", "a huge id", "no UTF-8", "nothing", "a list", "null", "wrong types", "unknown"],
)
async def test_a_request_that_is_none_is_an_error_of_the_protocol(host: Ask, body: bytes) -> None:
    async with host() as http:
        answer = await http.post(f"/mcp/{ONE}", content=body, headers=bearer(ONE))
        assert answer.status_code < 500, answer.text[:300]
        assert "error" in answer.json()
        assert (await http.post(f"/mcp/{ONE}", json=LIST, headers=bearer(ONE))).status_code == 200


async def test_a_request_has_a_size(host: Ask) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_LIMIT // 65_536 + 2):
            yield b" " * 65_536

    async with host() as http:
        for body in (b" " * (BODY_LIMIT + 1), pieces()):
            answer = await http.post(f"/mcp/{ONE}", content=body, headers=bearer(ONE))
            assert (answer.status_code, answer.json()) == (
                413,
                {"error": f"The request has more than {BODY_LIMIT} bytes."},
            )


async def test_a_request_that_does_not_come_is_not_waited_for(host: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.mcp.requests.BODY_SECONDS", 0.2)
    async with host() as http, asyncio.timeout(20):
        url = http.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = [f"POST /mcp/{ONE} HTTP/1.1", "Host: x", "Connection: close", "Content-Length: 99"]
        head += [f"{name}: {value}" for name, value in bearer(ONE).items()]
        writer.write("\r\n".join([*head, "", "{"]).encode())
        await writer.drain()
        # Nobody else waits meanwhile.
        assert (await http.post(f"/mcp/{ONE}", json=LIST, headers=bearer(ONE))).status_code == 200
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"The request did not arrive within 0.2 s." in answer


async def test_a_websocket_is_not_cut_by_the_bounds_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agensh.bounded_http.BoundedProtocol.head_seconds", 1.0)

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    listening = open_socket("127.0.0.1", 0, "test")
    server = make_server(Starlette(routes=[WebSocketRoute("/ws", echo)]))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(20):
            await until(lambda: server.started)
            url = f"ws://127.0.0.1:{listening.getsockname()[1]}/ws"
            async with websockets.connect(url, proxy=None) as socket:
                for number in range(4):
                    await asyncio.sleep(0.3)  # longer in all than a request's headers may take
                    await socket.send(f"x{number}")
                    assert await socket.recv() == f"x{number}"
    finally:
        server.stop()
        await task
        listening.close()
