"""The typed client against the service."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from agensh.clients import board as client_module
from agensh.clients.board import BoardClient, EntryRejected, Overlap, PendingNotice, Written
from agensh.entries import EntryType
from agensh.errors import ServiceError
from tests.contract.board.conftest import Api


async def test_everything_a_worker_does(api: Api) -> None:
    async with api.board.admin() as admin:
        token = await admin.create_token("w1")
        one, two = BoardClient(api.url, token, "main"), BoardClient(api.url, await admin.create_token("w2"), "main")
        async with one, two:
            assert await one.head() == 0
            assert await one.write(EntryType.CLAIM, "wc", "how") == Written(1, "G1")
            alike = (Overlap("G1", "w1", "wc", 100.0),)
            assert await two.write("CLAIM", "implement wc", key="k") == Written(2, "G2", alike)
            assert (await two.write("CLAIM", "other", key="k")).repeated
            with pytest.raises(EntryRejected, match="content: it is empty") as rejected:
                await one.write("FACT", " ", "\0")
            assert [error["code"] for error in rejected.value.errors] == ["content_empty", "detail_nul"]
            with pytest.raises(EntryRejected, match="65537 bytes"):
                await one.write("FACT", "x", "d" * 65537)
            with pytest.raises(EntryRejected, match="lone surrogate"):
                await one.write("FACT", "\ud800")
            await one.write("FACT", "100% ✅")
            entries = await two.read()
            assert [entry.label for entry in entries] == ["G1", "G2", "G3"]
            assert (entries[0].has_detail, entries[2].content) == (True, "100% ✅")
            assert await two.read(after=1, limit=1) == [entries[1]]
            assert await two.read(type=EntryType.FACT) == [entries[2]]
            assert await two.unfold("G1") == (entries[0], "how")
            page = await two.grep("wc,%", limit=2)
            assert [entry.label for entry in page.entries] == ["G3", "G2"]
            assert (page.more, page.next_before) == (True, 2)
            rest = await two.grep("wc,%", before=page.next_before, limit=2)
            assert (rest.entries, rest.more, rest.next_before) == ((entries[0],), False, None)
            assert not (await one.release("G1")).active
            with pytest.raises(ServiceError, match="403: label: G2 is w2's claim"):
                await one.release("G2")
            pending = await two.pending("w2")
            assert pending.notices == (PendingNotice("g3", "[w1/FACT +0.0m] 100% ✅ (G3)"),)
            assert (await two.pending("w2", ack=pending.cursor)).notices == ()
            stream = one.stream(1)
            assert [(await anext(stream)).seq for _ in range(2)] == [2, 3]
            await stream.aclose()
        await admin.revoke_token("w1")
        await admin.revoke_token("w1")  # again is no error
        async with BoardClient(api.url, token, "main") as gone:
            with pytest.raises(ServiceError, match="board answered 401") as refused:
                await gone.read()
            assert (refused.value.status, refused.value.retryable) == (401, False)
            with pytest.raises(ServiceError, match="board answered 401: Send a valid token"):
                await anext(gone.stream(0))


async def test_a_silent_stream_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n")
        await reader.read()  # until the other side hangs up
        writer.close()
        await writer.wait_closed()
        over.set()

    monkeypatch.setattr(client_module, "STREAM_SILENCE", 0.2)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with BoardClient(f"http://127.0.0.1:{port}", "t", "main") as client:
            with pytest.raises(ServiceError, match=r"the stream is silent: nothing came for 0\.2 s") as error:
                await anext(client.stream(0))
            assert (error.value.status, error.value.retryable) == (0, True)
        await asyncio.wait_for(over.wait(), 60)


async def test_a_callers_connections_stay_open(api: Api) -> None:
    async with httpx.AsyncClient(trust_env=False) as shared:
        for name in ("w1", "w2"):
            token = (await api.auth(name))["Authorization"][7:]
            async with BoardClient(api.url, token, "main", shared) as client:
                await client.write("FACT", name)
        assert not shared.is_closed
    assert [entry["worker"] for entry in (await api.get("/board/main")).json()["entries"]] == ["w1", "w2"]
