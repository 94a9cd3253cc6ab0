"""The MCP endpoint, its tools and the shim under faults of the network: no notice lost or doubled, no call for ever."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agensh.bounded_http import BoundedProtocol
from agensh.clients import http as client_http
from agensh.clients.board import BoardClient
from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from router.desk import Desk
from router.feed import BoardFeed
from router.mcp import pending as pending_module
from router.mcp.pending import Identity, PendingFeed
from router.mcp.server import ALL_TOOLS, create_mcp_app
from router.tools.registry import Call, Tool
from tests.support.board_server import RunningBoard, running_board
from tests.support.chaos import either, named_once, records_of
from tests.support.queues import running_queue, until
from tests.support.router_stage import MemoryBoard, direct_message
from tests.support.tcp_proxy import Mode, TcpProxy, tcp_proxy
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

ME, PEER = "demo-worker1", "demo-worker2"
KEEP_ALIVE = 1  # seconds
CROWD = 40  # calls


class Watched(BoundedProtocol):
    """The protocol of the node host; it counts the connections that it closed because they were idle."""

    idle = 0

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        Watched.idle += 1


async def _long(_call: Call[Any]) -> str:
    return "x" * 30_000


LONG_TOOL: Tool[Any] = Tool("long", "says a lot", (), _long)


class DeskWorker(StubWorker):
    """A worker with a real desk."""

    def __init__(self, desk: Desk, board: BoardClient | None) -> None:
        super().__init__(ME, SystemClock(), board=board)
        self._real = desk

    @property
    def desk(self) -> Any:
        return self._real


@dataclass
class Host:
    """A node host's endpoint with one worker, behind a proxy."""

    url: str
    proxy: TcpProxy
    worker: DeskWorker
    feed: BoardFeed
    queue: Any
    seq: int = 0

    async def tell(self) -> tuple[str, str]:
        """Let an entry and a direct message wait; return their words."""
        self.seq += 1
        entry, message = f"entry number {self.seq}", f"message number {self.seq}"
        self.feed.add(Entry(self.seq, PEER, EntryType.FAIL, entry, SystemClock().time()))
        await self.queue.put([direct_message(self.seq, message, at=SystemClock().time())])
        return entry, message

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def request(self, tool: str) -> bytes:
        """A call of a tool as a client writes it to its socket."""
        text = json.dumps(body(tool))
        head = (
            f"POST /mcp/{ME} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.worker.token}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
            f"MCP-Protocol-Version: 2025-06-18\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        return (head + text).encode()

    def client(self, url: str | None = None) -> httpx.AsyncClient:
        headers = {
            "authorization": f"Bearer {self.worker.token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18",
        }
        return httpx.AsyncClient(base_url=url or self.proxy.url, trust_env=False, headers=headers, timeout=30)


def body(tool: str = "board_pending", **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def call(client: httpx.AsyncClient, tool: str, **arguments: Any) -> str:
    response = await client.post(f"/mcp/{ME}", json=body(tool, **arguments))
    assert response.status_code == 200, response.text
    return "\n".join(block["text"] for block in response.json()["result"]["content"])


@asynccontextmanager
async def hosting(folder: Path, board: BoardClient | None = None, *, call_timeout: float = 20.0) -> AsyncIterator[Host]:
    clock = SystemClock()
    feed = BoardFeed(MemoryBoard(clock), clock)
    async with running_queue(folder, ME) as rows:
        desk = Desk(ME, feed, rows.queue, rows.queue._writer, clock)
        rows.queue.on_new = desk.expect
        worker = DeskWorker(desk, board)
        app = create_mcp_app({ME: worker}, clock=clock, call_timeout=call_timeout, tools=(*ALL_TOOLS, LONG_TOOL))
        async with (
            serving(app, http=Watched, timeout_keep_alive=KEEP_ALIVE) as url,
            tcp_proxy(int(url.rsplit(":", 1)[1])) as proxy,
        ):
            yield Host(url, proxy, worker, feed, rows.queue)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBoard]:
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_traces(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("length", either([0, 300], [0, 1, 40, 150, 300]))
async def test_notices_of_an_answer_that_was_cut_come_with_the_next(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(tmp_path) as host, host.client() as client:
        told = await host.tell()
        host.proxy.cut_within(length)
        with pytest.raises(httpx.TransportError):
            await client.post(f"/mcp/{ME}", json=body("nothing"))
        again = await call(client, "nothing")
        assert all(words in again for words in told)
        more = await host.tell()
        third = await call(client, "nothing")
        assert all(words in third for words in more)
        assert not any(words in third for words in told)
        assert "[agensh notices]" not in await call(client, "nothing")
    named_once(records_of(caplog.records), "notices were lost on their way")


async def test_what_was_cut_before_the_end_of_a_turn_is_in_the_next_one(tmp_path: Path) -> None:
    async with hosting(tmp_path) as host, host.client() as client:
        entry, message = await host.tell()
        host.proxy.cut_within(200)
        with pytest.raises(httpx.TransportError):
            await client.post(f"/mcp/{ME}", json=body("nothing"))
        await until(lambda: not host.proxy.cuts_left, "the answer was cut")
        host.worker.desk.close_turn(delivered=True)
        claim = await host.queue.claim("session")
        assert claim is not None
        assert [event.summary for event in claim.events] == [message]
        context = host.worker.desk.open_turn(claim.turn_id, claim.events, room=1000, length=lambda _entry: 10)
        assert [item.content for item in context.entries] == [entry]


async def test_a_client_that_reads_no_more_has_not_been_told(tmp_path: Path) -> None:
    async with hosting(tmp_path) as host, host.client(host.url) as client:
        told = await host.tell()
        with socket.create_connection(("127.0.0.1", host.port)) as silent:
            silent.sendall(host.request("nothing"))
            await until(lambda: bool(host.worker.calls), "the call was made")
            await asyncio.to_thread(silent.recv, 1, socket.MSG_PEEK)
        # Closed with the answer unread: its kernel says so.
        again = await call(client, "nothing")
        assert all(words in again for words in told)


@pytest.mark.parametrize("after", ["keep-alive", "close"])
async def test_a_new_connection_for_each_call_repeats_nothing(tmp_path: Path, after: str) -> None:
    async with hosting(tmp_path) as host:
        seen = ""
        for _ in range(either(10, 50)):
            await host.tell()
            async with host.client(host.url) as client:
                client.headers["connection"] = after
                seen += await call(client, "nothing")
        for number in range(1, host.seq + 1):
            assert seen.count(f"entry number {number} (") == 1
            assert seen.count(f"message number {number}\n") == 1


async def test_a_client_whose_machine_confirms_nothing_has_not_been_told(tmp_path: Path) -> None:
    async with hosting(tmp_path) as host, host.client(host.url) as client:
        told = await host.tell()
        with socket.socket() as stalled:
            # With a buffer that the answer overflows, its kernel confirms only a part of it.
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect(("127.0.0.1", host.port))
            idle = Watched.idle
            stalled.sendall(host.request("long"))
            await until(lambda: bool(host.worker.calls), "the call was made")
            await until(lambda: Watched.idle > idle, "the server closes the idle connection")
            again = await call(client, "nothing")
            assert all(words in again for words in told)


async def test_a_connection_kept_too_long_repeats_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path) as host, host.client() as client:
        told = await host.tell()
        shown = await call(client, "nothing")
        assert all(words in shown for words in told)
        # The server closes the idle connection; what it carried had arrived.
        await until(lambda: not host.proxy.open, "the server closed the connection")
        assert "[agensh notices]" not in await call(client, "nothing")


async def test_a_token_that_is_exchanged_is_refused_at_the_next_call(tmp_path: Path) -> None:
    async with hosting(tmp_path) as host, host.client() as client:
        await call(client, "nothing")
        host.worker.token = "another-token"
        response = await client.post(f"/mcp/{ME}", json=body("nothing"))
        assert (response.status_code, response.json()["error"]) == (401, "The bearer token is not valid.")


@asynccontextmanager
async def tools_on(
    folder: Path, board: RunningBoard, *, call_timeout: float = 20.0
) -> AsyncIterator[tuple[httpx.AsyncClient, TcpProxy]]:
    """A client of an endpoint whose tools reach the board through a proxy."""
    token = await asyncio.to_thread(board.token_for, ME)
    async with (
        tcp_proxy(int(board.url.rsplit(":", 1)[1])) as proxy,
        BoardClient(proxy.url, token, "main") as client,
        hosting(folder, client, call_timeout=call_timeout) as host,
        host.client(host.url) as cli,
    ):
        yield cli, proxy


async def reads_again(client: httpx.AsyncClient) -> None:
    """Wait for a call that ends in time, which on a busy machine need not be the first one."""
    async with asyncio.timeout(40):
        while not (await call(client, "board_read")).startswith("status=ok"):
            pass


# asyncio leaves a socket to the garbage collector that is connected in the moment in which its caller is cancelled.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("mode", either([Mode.STALL], list(Mode)[1:]))
async def test_a_tool_whose_service_does_not_move_ends_in_time_and_says_so(
    tmp_path: Path, board: RunningBoard, mode: Mode
) -> None:
    async with tools_on(tmp_path, board, call_timeout=1.0) as (client, proxy):
        await reads_again(client)
        proxy.trickle_every = 1.0
        proxy.mode = mode
        # More at once than the pool has connections: none may stay behind.
        for said in await asyncio.gather(*(call(client, "board_read") for _ in range(CROWD))):
            assert said.startswith("status=timeout\nboard_read did not end within 1 s.")
        proxy.mode = Mode.PASS
        await reads_again(client)
    gc.collect()


async def test_a_note_whose_answer_is_cut_again_and_again_is_written_once(tmp_path: Path, board: RunningBoard) -> None:
    async with tools_on(tmp_path, board) as (client, proxy), board.admin() as admin:
        before = await admin.head()
        proxy.cut_within(0, 30, 200)
        said = await call(client, "board_write", type="FACT", content="cut three times")
        assert f"G{before + 1}" in said
        assert proxy.cuts_left == 0
        assert [entry.content for entry in await admin.read(after=before)] == ["cut three times"]


PAGE = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>"
GARBLED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n"
    b"connection: close\r\n\r\n\x1f\x8b\x08xyz"
)
WAIT = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 90\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([PAGE], "code=200\nboard answered 200: the answer is not JSON; is the address right?"),
        ([GARBLED] * client_http.ATTEMPTS, "code=0\nboard did not answer: DecodingError"),
        ([WAIT], "code=503\nboard answered 503: busy. Try again in 90 s; go on with something else meanwhile."),
        ([b"not HTTP at all\r\n\r\n"] * client_http.ATTEMPTS, "code=0\nboard did not answer: RemoteProtocolError"),
    ],
    ids=["page", "garbled", "wait", "no-http"],
)
async def test_an_answer_that_is_none_is_a_sentence(
    tmp_path: Path, board: RunningBoard, answers: list[bytes], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_http, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(client_http.backoff, "__kwdefaults__", {"first": 0.0, "longest": 0.0})
    async with tools_on(tmp_path, board) as (client, proxy):
        proxy.answers.extend(answers)
        assert said in await call(client, "board_read")
        assert not proxy.answers, "the tries are bounded, and all were made"
        assert (await call(client, "board_read")).startswith("status=ok")


async def test_a_revoked_board_token_is_told_to_the_worker(tmp_path: Path, board: RunningBoard) -> None:
    async with tools_on(tmp_path, board) as (client, _), board.admin() as admin:
        await call(client, "board_read")
        await admin.revoke_token(ME)
        said = await call(client, "board_read")
        assert said.startswith("status=failed service=board code=401\n")
        assert said.endswith("Your account may not do this; do not try again.")


@dataclass
class Shim:
    """The part of the shim that asks for notices, and what it complains of."""

    feed: PendingFeed
    complaints: list[str]

    def result(self) -> str:
        """One tool call and its result, as the wrapped client sees it."""
        self.feed.next_call()
        notice = self.feed.take()
        self.feed.written()
        return f"{notice.text}\n" if notice else ""


@pytest.fixture
def _impatient_shim(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("TIMEOUT", 1.0), ("LONGEST_ANSWER", 1.5), ("FIRST_PAUSE", 0.1), ("LONGEST_PAUSE", 0.2)):
        monkeypatch.setattr(pending_module, name, seconds)


@pytest.mark.usefixtures("_impatient_shim")
@pytest.mark.parametrize(
    "fault", either(["cut", "orderly", "trickle"], ["cut", "orderly", "stall", "swallow", "trickle", "busy"])
)
async def test_the_shim_shows_everything_once_whatever_becomes_of_its_connection(tmp_path: Path, fault: str) -> None:
    async with hosting(tmp_path) as host:
        complaints: list[str] = []
        identity = Identity(f"{host.proxy.url}/pending/{ME}", host.worker.token)
        shim = Shim(PendingFeed(identity, complaints.append), complaints)
        threads = threading.active_count()  # other tests of this process may have left some in their pools
        seen = ""

        async def results_until_shown() -> None:
            nonlocal seen
            async with asyncio.timeout(40):
                while not all(f"{kind} number {host.seq}" in seen for kind in ("entry", "message")):
                    seen += await asyncio.to_thread(shim.result)
                    await asyncio.sleep(0.02)

        await host.tell()
        await results_until_shown()
        await host.tell()
        match fault:
            case "cut" | "orderly":
                host.proxy.orderly = fault == "orderly"
                # The headers of an answer are a piece of their own.
                host.proxy.cut_within(0, 20, 1000, 1000, 5)
            case "busy":
                host.proxy.answers.extend([WAIT] * 3)
            case _:
                host.proxy.trickle_every = 0.3
                host.proxy.mode = Mode(fault)
        async with asyncio.timeout(40):
            while not complaints or host.proxy.cuts_left:
                seen += await asyncio.to_thread(shim.result)
        if host.proxy.mode is not Mode.PASS:
            for _ in range(5):
                seen += await asyncio.to_thread(shim.result)
            assert len(complaints) == 1, f"one line an outage: {complaints}"
        host.proxy.mode = Mode.PASS
        await host.tell()
        await results_until_shown()
        for number in range(1, host.seq + 1):
            assert seen.count(f"entry number {number} (") == 1, seen
            assert seen.count(f"message number {number}\n") == 1, seen
        assert threading.active_count() < threads + 40
