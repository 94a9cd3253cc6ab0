"""What one caller may ask of the board: how often, how much, how slowly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError
from board_service.gate import BODY_CAP, HEADERS_CAP, QUERY_CAP
from tests.contract.board.conftest import Api, Serve

NOTE = {"type": "FACT", "content": "x"}


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Limits do not reach the database: SQLite is enough."""
    return f"sqlite+aiosqlite:///{tmp_path / 'board.sqlite3'}"


def codes(answer: httpx.Response) -> list[str]:
    return [error["code"] for error in answer.json()["errors"]]


async def test_a_worker_that_writes_too_much_waits_and_nobody_else_does(serve: Serve) -> None:
    async with serve(write_rate=0.1, write_burst=3) as api:
        for _ in range(3):
            assert (await api.post("/board/main/note", json=NOTE)).status_code == 200
        refused = await api.post("/board/main/note", json=NOTE)
        assert (refused.status_code, codes(refused)) == (429, ["too_many_requests"])
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert refused.json()["reason"] == "Too many writes: 0.1 a second are allowed in the long run; wait."
        assert (await api.get("/board/main")).json()["head"] == 3  # reading goes on, and nothing was written
        assert (await api.post("/board/main/note", "w2", json=NOTE)).status_code == 200
        assert (await api.post("/board/main/note", "admin", json=NOTE)).status_code == 200
        text = (await api.get("/metrics", "admin")).text
        assert 'agensh_board_rejections_total{code="too_many_requests"} 1' in text


async def test_a_worker_that_reads_too_much_waits(serve: Serve) -> None:
    async with serve(read_rate=0.1, read_burst=3) as api:
        for path in ("/board/main", "/pending/w1", "/tokens/self"):
            assert (await api.get(path)).status_code == 200
        refused = await api.get("/board/main")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert (await api.post("/board/main/note", json=NOTE)).status_code == 200


async def test_two_tokens_of_one_worker_share_its_bucket(serve: Serve) -> None:
    async with serve(write_rate=0.1, write_burst=2) as api:
        body = {"worker": "w1", "board": "main", "role": "worker"}
        header = {"Authorization": f"Bearer {(await api.post('/tokens', 'admin', json=body)).json()['token']}"}
        for _ in range(2):
            assert (await api.post("/board/main/note", json=NOTE)).status_code == 200
        assert (await api.http.post("/board/main/note", json=NOTE, headers=header)).status_code == 429


async def test_the_client_waits_as_it_is_told(serve: Serve) -> None:
    async with serve(write_rate=20.0, write_burst=1) as api:
        token = (await api.auth("w1"))["Authorization"].removeprefix("Bearer ")
        async with asyncio.timeout(20), BoardClient(api.url, token, "main") as client:
            labels = [(await client.write("FACT", f"x {number}")).label for number in range(3)]
        assert labels == ["G1", "G2", "G3"]


async def test_a_stream_that_is_refused_for_its_rate_may_be_tried_again(serve: Serve) -> None:
    async with serve(read_rate=0.1, read_burst=1) as api:
        token = (await api.auth("w1"))["Authorization"].removeprefix("Bearer ")
        async with asyncio.timeout(20), BoardClient(api.url, token, "main") as client:
            assert await client.whoami() == "w1"
            with pytest.raises(ServiceError) as refused:
                async for _ in client.stream(0):
                    pass
        assert (refused.value.status, refused.value.retryable) == (429, True)
        assert 1 <= (refused.value.retry_after or 0) <= 10


async def test_the_default_lets_a_closed_loop_pass(serve: Serve) -> None:
    async with serve() as api:
        answers = [await api.post("/board/main/note", json=NOTE) for _ in range(60)]
        assert {answer.status_code for answer in answers} == {200}


async def test_sizes_are_bounded(api: Api) -> None:
    header = await api.auth("w1")
    for path in ("/board/main", "/tokens/self", "/pending/w1"):
        long = await api.http.get(f"{path}?q={'x' * (QUERY_CAP + 1)}", headers=header)
        assert (long.status_code, codes(long)) == (422, ["query_too_long"])
        wide = await api.http.get(path, headers=header | {f"x-{n}": "y" * 1000 for n in range(HEADERS_CAP // 1000 + 1)})
        assert (wide.status_code, codes(wide)) == (431, ["headers_too_long"])
    admin = await api.auth("admin")
    for path, who in (("/board/main/note", header), ("/tokens", admin)):
        big = json.dumps({"worker": "x", **NOTE, "detail": "y" * BODY_CAP})

        async def pieces(text: str = big) -> object:
            for start in range(0, len(text), 65_536):
                yield text[start : start + 65_536].encode()

        told = await api.http.post(path, content=big, headers=who | {"Content-Type": "application/json"})
        untold = await api.http.post(path, content=pieces(), headers=who | {"Content-Type": "application/json"})  # type: ignore[arg-type]
        for answer in (told, untold):
            assert (path, answer.status_code, codes(answer)) == (path, 413, ["body_too_long"])


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 60_000,
        b'{"type": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe{}",
        b"NaN",
        b"",
        b'{"type":"FACT","content":"x"',
    ],
    ids=["deep lists", "deep objects", "a huge number", "no UTF-8", "NaN", "nothing", "cut"],
)
async def test_a_body_that_is_no_note_is_one_sentence(api: Api, body: bytes) -> None:
    for path, who in (("/board/main/note", "w1"), ("/tokens", "admin")):
        headers = {"Content-Type": "application/json"}
        answer = await api.post(path, who, content=body, headers=headers)
        assert (path, answer.status_code) == (path, 422), answer.text
        assert len(answer.json()["reason"]) < 400


async def raw(api: Api, *pieces: bytes) -> bytes:
    """Send bytes and return what comes until the server closes the connection."""
    parts = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    came = b""
    try:
        async with asyncio.timeout(20):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while chunk := await reader.read(65_536):
                came += chunk
        return came
    except ConnectionError:  # it closed with bytes of ours unread
        return came
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_a_body_that_does_not_come_is_not_waited_for(serve: Serve) -> None:
    async with serve(body_seconds=0.2) as api:
        token = (await api.auth("w1"))["Authorization"]
        head = f"POST /board/main/note HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nConnection: close\r\n"
        answer = await raw(api, f"{head}Content-Length: 50\r\n\r\n{{".encode())
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"it did not arrive within 0.2 s" in answer


async def test_headers_without_end_are_cut(api: Api) -> None:
    answer = await raw(api, b"GET /healthz HTTP/1.1\r\n", *[b"x-a: " + b"y" * 8000 + b"\r\n"] * 9)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_connection_that_says_nothing_is_closed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agensh.bounded_http.BoundedProtocol.head_seconds", 0.2)
    for pieces in ([], [b"GET /hea"], [b"GET /healthz HTTP/1.1\r\nHost: x\r\n"]):
        assert await raw(api, *pieces) == b""
    # Between two requests as well; the first gets more time than a busy machine takes for it.
    monkeypatch.setattr("agensh.bounded_http.BoundedProtocol.head_seconds", 2.0)
    answer = await raw(api, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /hea")
    assert answer.count(b"HTTP/1.1 200") == 1


async def test_a_stream_is_not_cut_by_the_bounds(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agensh.bounded_http.BoundedProtocol.head_seconds", 0.6)
    async with serve(heartbeat_seconds=0.1, body_seconds=0.6) as api, asyncio.timeout(60):
        async with api.http.stream("GET", "/board/main/stream", headers=await api.auth("w1")) as answer:
            beats = 0
            async for line in answer.aiter_lines():
                beats += line == ": heartbeat"
                if beats == 8:
                    break
        assert beats == 8
