"""What comes between two steps: another change of the keys, a stop, a lost answer, a pool without a connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from sqlalchemy import make_url
from starlette.types import Message, Scope, Send

from agensh.clock import SystemClock
from agensh.gateway.app import Gateway
from agensh.gateway.exchange import Exchange
from agensh.gateway.ledger import Begun, Ledger, Settled, read_requests
from agensh.gateway.usage import Tokens
from agensh.urls import sqlite_url
from tests.support.gateway import ADMIN, CREDENTIAL, ONE, section, serving_gateway
from tests.support.provider import EVENTS, USAGE, Answer, Received, provider, sse, usual
from tests.support.tcp_proxy import tcp_proxy

WAIT = 30.0  # seconds for what has to happen
END = Settled("metered", 3.0, 200, "", Tokens(10, 4, 1, 5, 2), 0.25)


async def test_keys_that_are_made_at_once_are_all_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one change has read is told after the other change."""
    three, four = "demo-worker3", "demo-worker4"
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway, asyncio.timeout(WAIT):
        read = gateway.gateway.ledger.keys
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def slowly() -> dict[str, str]:
            found = await read()
            if not reading.is_set():
                reading.set()
                await go_on.wait()
            return found

        monkeypatch.setattr(gateway.gateway.ledger, "keys", slowly)

        async def make(worker: str) -> str:
            made = await gateway.http.post(
                "/keys", json={"worker": worker}, headers={"Authorization": f"Bearer {ADMIN}"}
            )
            return str(made.json()["key"])

        first = asyncio.create_task(make(three))
        await asyncio.wait((first, asyncio.create_task(reading.wait())), return_when=asyncio.FIRST_COMPLETED)
        keys = {four: await make(four)}
        revoked = await gateway.http.delete(f"/keys/{ONE}", headers={"Authorization": f"Bearer {ADMIN}"})
        go_on.set()
        reading.set()
        keys[three] = await first
        assert revoked.status_code == 200
        for worker, key in keys.items():
            assert (await gateway.http.get("/key", headers={"x-api-key": key})).json() == {"worker": worker}
        assert (await gateway.http.get("/key", headers=gateway.auth(ONE))).status_code == 401


async def relay(gateway: Gateway, send: Send) -> None:
    """Ask for a stream of Messages as a worker does whose connection is `send`."""
    key = await gateway.new_key(ONE)
    scope: Scope = {
        "type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"",
        "headers": [(b"x-api-key", key.encode())],
    }  # fmt: skip
    body = [{"type": "http.request", "body": b'{"model":"claude-sonnet-4-5","stream":true}', "more_body": False}]

    async def receive() -> Any:
        return body.pop() if body else await asyncio.get_running_loop().create_future()

    await gateway.relay(scope, receive, send)


async def test_a_stop_records_what_was_under_way_until_its_last_moment(tmp_path: Path) -> None:
    """The record closes after the last request, whatever else has to end."""

    async def half(received: Received, answer: Answer) -> None:
        await answer.stream()
        for event in EVENTS["/v1/messages"]()[:3]:
            await answer.write(event)
        await answer.gone()

    database = sqlite_url(tmp_path / "gateway.sqlite3")
    begun = asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body"):
            begun.set()

    async with provider(half) as upstream:
        gateway = Gateway(section(upstream), CREDENTIAL, ADMIN, database, SystemClock())
        async with gateway.running():
            relaying = asyncio.create_task(relay(gateway, send))
            await begun.wait()
        await asyncio.wait_for(relaying, WAIT)
    (row,) = [row async for row in read_requests(database)]
    assert (row["state"], row["reason"]) == ("unmetered", "the gateway stopped")
    assert row["input_tokens"] == USAGE["input"]


async def test_what_came_while_a_worker_was_slow_counts_although_the_provider_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last report arrives, and the connection breaks, before the worker has taken the beginning."""
    slow = asyncio.Event()

    async def breaking(received: Received, answer: Answer) -> None:
        first, *more, _ = EVENTS["/v1/messages"]()
        await answer.stream()
        await answer.write(first)
        await slow.wait()
        await answer.write(b"".join(more))
        answer.cut()

    taken: list[ClientResponse] = []
    pass_on = Exchange._pass_on

    async def seen(exchange: Exchange, answer: ClientResponse) -> None:
        taken.append(answer)
        await pass_on(exchange, answer)

    async def send(message: Message) -> None:
        if message.get("body"):
            slow.set()
            while taken[0].content.exception() is None:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0)

    monkeypatch.setattr(Exchange, "_pass_on", seen)
    database = sqlite_url(tmp_path / "gateway.sqlite3")
    async with provider(breaking) as upstream:
        gateway = Gateway(section(upstream), CREDENTIAL, ADMIN, database, SystemClock())
        async with gateway.running():
            await asyncio.wait_for(relay(gateway, send), WAIT)
    (row,) = [row async for row in read_requests(database)]
    assert (row["state"], row["reason"]) == ("unmetered", "the provider cut the answer")
    assert (row["input_tokens"], row["output_tokens"]) == (USAGE["input"], USAGE["output"])


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_what_a_stream_reported_is_on_record_before_its_end(tmp_path: Path, path: str) -> None:
    """A kill between the last report and the end of the stream loses nothing of it."""

    def counting(count: int) -> bytes:
        usage = {"prompt_tokens": USAGE["input"], "completion_tokens": count}
        return sse({"model": "gpt-5.4", "choices": [{"index": 0, "delta": {"content": "x"}}], "usage": usage})

    begun, go_on = asyncio.Event(), asyncio.Event()

    async def reporting(received: Received, answer: Answer) -> None:
        await answer.stream()
        if path == "/v1/messages":
            first, *more, last = EVENTS[path]()
            await answer.write(first)
            await begun.wait()
            await answer.write(b"".join(more))
            await go_on.wait()
            await answer.write(last)
        else:
            await answer.write(counting(1))
            await begun.wait()
            count = 1
            while not go_on.is_set():
                count = min(count + 1, USAGE["output"])
                await answer.write(counting(count))
        await answer.end()

    async with provider(reporting) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        asking = asyncio.create_task(gateway.ask(path, {"model": "gpt-5.4", "stream": True}))
        async with asyncio.timeout(WAIT):
            for output, event in ((1, begun), (USAGE["output"], go_on)):
                while [row["output_tokens"] for row in await gateway.rows()] != [output]:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                (row,) = await gateway.rows()
                assert (row["state"], row["input_tokens"]) == ("open", USAGE["input"])
                assert row["cost_usd"] is not None
                event.set()
        assert (await asking).status_code == 200
        (row,) = await gateway.rows()
        assert (row["state"], row["output_tokens"]) == ("metered", USAGE["output"])


@pytest.mark.parametrize("fault", ["pool", "other"])
async def test_the_record_goes_on_after_any_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """All connections are taken for longer than the pool waits; or the driver fails in a way of its own."""
    monkeypatch.setattr("agensh.gateway.ledger.RETRY_WAIT", 0.01)
    database = sqlite_url(tmp_path / "gateway.sqlite3")
    ledger = Ledger(database, SystemClock())
    await ledger.open()
    engine: Any = ledger._engine
    commit = ledger._commit
    held = []
    if fault == "pool":
        engine.sync_engine.pool._timeout = 0.01
        held = [await engine.connect() for _ in range(4)]
    else:

        async def failing(batch: Any) -> None:
            raise RuntimeError("the transport is closed")

        monkeypatch.setattr(ledger, "_commit", failing)
    writing = asyncio.create_task(ledger.run())
    begun = Begun("1" * 32, ONE, "chat", "m", 1.0)
    ledger.begin(begun)
    settling = asyncio.create_task(ledger.settle(begun, END))
    async with asyncio.timeout(WAIT):
        while not ledger.away:
            assert not writing.done()
            await asyncio.sleep(0)
        for connection in held:
            await connection.close()
        monkeypatch.setattr(ledger, "_commit", commit)
        await settling
        assert not ledger.away
        ledger.close()
        await writing
    await ledger.dispose()
    assert [row["state"] async for row in read_requests(database)] == ["metered"]


async def test_a_revocation_whose_answer_was_lost_is_told(request: pytest.FixtureRequest) -> None:
    url = make_url(request.getfixturevalue("mariadb_server").new_database())
    assert url.port is not None
    async with tcp_proxy(url.port) as proxy:
        ledger = Ledger(url.set(port=proxy.port).render_as_string(hide_password=False), SystemClock())
        await ledger.open()
        key = await ledger.new_key(ONE)
        assert ONE in (await ledger.keys()).values()
        proxy.drop_answer_to = b"COMMIT"
        revoking = asyncio.create_task(ledger.revoke(ONE))
        async with asyncio.timeout(WAIT):
            while not proxy.dropped:  # noqa: ASYNC110 - the proxy counts
                await asyncio.sleep(0)
        proxy.refuse = False
        assert await revoking
        assert key
        assert await ledger.keys() == {}
        assert not await ledger.revoke(ONE)
        await ledger.dispose()
