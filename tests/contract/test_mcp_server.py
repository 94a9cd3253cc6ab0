"""The MCP endpoints of a host, through the official client and through raw HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from router.mcp.notices import PendingMessage
from router.mcp.server import create_mcp_app
from router.tools.registry import Call, Tool
from tests.support.clock import ManualClock
from tests.support.mcp_client import CLOCK, ONE, TWO, Mode, http, rpc, session, two_workers
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker


def fail(seq: int, worker: str = TWO) -> Entry:
    return Entry(seq, worker, EntryType.FAIL, f"content {seq}", CLOCK.time() - 24)


@pytest.fixture
def workers() -> dict[str, StubWorker]:
    return two_workers()


@pytest.fixture
async def url(workers: dict[str, StubWorker]) -> AsyncIterator[str]:
    async with serving(create_mcp_app(workers, clock=CLOCK, tools=(*TOOLS,), call_timeout=0.5)) as base:
        yield base


async def _sleep(call: Call[Any]) -> str:
    await asyncio.sleep(5)
    return "late"


async def _fault(call: Call[Any]) -> str:
    raise KeyError("secret detail")


async def _down(call: Call[Any]) -> str:
    raise ServiceError("The forge", 0, "ConnectError", retryable=True)


async def _echo(call: Call[Any]) -> str:
    return f"I am {call.port.name}"


TOOLS: tuple[Tool[Any], ...] = (
    Tool("sleep", "d", (), _sleep, writes=True),
    Tool("fault", "d", (), _fault),
    Tool("down", "d", (), _down),
    Tool("echo", "d", (), _echo),
)


AGAIN = "Try again in a minute; go on with something else meanwhile."


def texts(result: Any) -> list[str]:
    return [block.text.removeprefix("\n") for block in result.content]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client(url: str, workers: dict[str, StubWorker], mode: Mode) -> None:
    workers[ONE].desk.entries.append(fail(1))
    async with session(url, mode=mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["sleep", "fault", "down", "echo"]
        assert all(tool.output_schema is None for tool in listed.tools)
        first = await client.call_tool("echo", {})
        assert texts(first) == [f"I am {ONE}", "[agensh notices]\n[demo-worker2/FAIL +0.4m] content 1 (G1)"]
        assert first.structured_content is None
        assert texts(await client.call_tool("echo", {})) == [f"I am {ONE}"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize(
    "accept", ["application/json, text/event-stream", "application/json", "text/event-stream", "*/*"]
)
async def test_every_protocol_version_and_accept(
    url: str, workers: dict[str, StubWorker], version: str, accept: str
) -> None:
    workers[ONE].desk.entries.append(fail(1))
    async with http(url, accept=accept) as client:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        del client.headers["mcp-protocol-version"]
        answer = await client.post(f"/mcp/{ONE}", json=rpc("initialize", hello))
        assert _body(answer)["result"]["protocolVersion"] == version
        assert answer.headers["content-type"].startswith(
            "text/event-stream" if accept == "text/event-stream" else "application/json"
        )
        client.headers["mcp-protocol-version"] = version
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await client.post(f"/mcp/{ONE}", json=note)).status_code == 202
        answer = await client.post(f"/mcp/{ONE}", json=rpc("tools/call", {"name": "echo"}))
        assert len(_body(answer)["result"]["content"]) == 2


def _body(answer: httpx.Response) -> dict[str, Any]:
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and line != "data:")
    return dict(json.loads(text))


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_and_no_session(url: str, method: str) -> None:
    async with http(url) as client:
        answer = await client.request(method, f"/mcp/{ONE}")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        ("/mcp/demo-worker1", None, 401),
        ("/mcp/demo-worker1", "Bearer", 401),
        ("/mcp/demo-worker1", "Bearer wrong", 401),
        ("/mcp/demo-worker1", "Basic dG9rZW4=", 401),
        ("/mcp/demo-worker1", "Bearer tökén", 401),
        ("/mcp/demo-worker1", "Bearer token-of-demo-worker2", 403),
        ("/mcp/nobody", "Bearer token-of-demo-worker1", 404),
        ("/mcp/nobody", "Bearer wrong", 401),
        ("/mcp/nobody", None, 401),
        ("/pending/demo-worker1", None, 401),
        ("/pending/demo-worker1", "Bearer wrong", 401),
        ("/pending/demo-worker1", "Bearer token-of-demo-worker2", 403),
        ("/pending/nobody", "Bearer token-of-demo-worker1", 404),
        ("/pending/demo-worker1", "Bearer token-of-demo-worker1", 200),
        ("/pending/demo-worker1", "bearer token-of-demo-worker1", 200),
    ],
)
async def test_only_the_worker_itself_gets_in(
    url: str, workers: dict[str, StubWorker], path: str, authorization: str | None, status: int
) -> None:
    workers[ONE].desk.entries.append(fail(1))
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        if path.startswith("/pending"):
            answer = await client.get(path, headers=headers)  # type: ignore[arg-type]
        else:
            answer = await client.post(path, headers=headers, json=rpc("tools/call", {"name": "echo"}))  # type: ignore[arg-type]
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) == (status == 401)
    if status != 200:
        assert workers[ONE].desk.handed_out == []
        assert workers[ONE].calls == []


async def test_a_notice_comes_once_and_is_acknowledged_by_the_next_call(
    url: str, workers: dict[str, StubWorker]
) -> None:
    desk = workers[ONE].desk
    desk.messages.append(PendingMessage("e7", TWO, "yours is `sort`", CLOCK.time()))
    desk.entries += [fail(1), fail(2)]
    async with session(url) as client:
        counts = []
        for number in range(10):
            counts.append(len(texts(await client.call_tool("echo", {}))))
            assert desk.acknowledged == ([] if number == 0 else ["e7", "g1", "g2"])
    assert counts == [2] + [1] * 9


async def test_what_a_dead_worker_did_not_prove_is_shown_again(url: str, workers: dict[str, StubWorker]) -> None:
    desk = workers[ONE].desk
    desk.entries.append(fail(1))
    async with session(url) as client:
        assert len(texts(await client.call_tool("echo", {}))) == 2
    desk.restart()
    async with session(url) as client:
        assert len(texts(await client.call_tool("echo", {}))) == 2
    assert desk.acknowledged == []


async def test_a_client_that_left_gets_no_notice(workers: dict[str, StubWorker]) -> None:
    """What an answer nobody reads would have shown stays pending."""
    called, left = asyncio.Event(), asyncio.Event()

    async def hold(_call: Call[Any]) -> str:
        called.set()
        await left.wait()
        return "late"

    worker = workers[ONE]
    worker.desk.entries.append(fail(1))
    tools = (Tool("hold", "d", (), hold), *TOOLS)
    async with serving(create_mcp_app(workers, clock=CLOCK, tools=tools)) as url:
        async with http(url) as client, asyncio.timeout(60):
            asking = asyncio.create_task(client.post(f"/mcp/{ONE}", json=rpc("tools/call", {"name": "hold"})))
            await called.wait()
            asking.cancel()
            await asyncio.wait([asking])
        await ManualClock.settle()  # the server lives in this loop: it hears of the end in one of the next rounds
        left.set()
        async with asyncio.timeout(60):
            await worker.recorded.wait()
        assert worker.desk.handed_out == []
        async with http(url) as client:
            answer = await client.post(f"/mcp/{ONE}", json=rpc("tools/call", {"name": "echo"}))
        assert len(answer.json()["result"]["content"]) == 2


async def test_two_workers_in_parallel(url: str, workers: dict[str, StubWorker]) -> None:
    workers[ONE].desk.entries.append(fail(1))
    workers[TWO].desk.entries.append(fail(2, ONE))

    async def many(worker: str) -> list[list[str]]:
        async with session(url, worker) as client:
            return [texts(await client.call_tool("echo", {})) for _ in range(20)]

    one, two = await asyncio.gather(many(ONE), many(TWO))
    assert [line[0] for line in one] == [f"I am {ONE}"] * 20
    assert [line[0] for line in two] == [f"I am {TWO}"] * 20
    assert [line[1] for line in one if len(line) > 1] == ["[agensh notices]\n[demo-worker2/FAIL +0.4m] content 1 (G1)"]
    assert [line[1] for line in two if len(line) > 1] == ["[agensh notices]\n[demo-worker1/FAIL +0.4m] content 2 (G2)"]


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (
            "sleep",
            "status=timeout\nsleep did not end within 0.5 s. It may have taken effect: look before you repeat it.",
        ),
        (
            "fault",
            f"status=failed\nfault failed inside Agensh (KeyError). {AGAIN}",
        ),
        (
            "down",
            f"status=failed service=forge code=0\nThe forge did not answer: ConnectError. {AGAIN}",
        ),
        ("nope", 'status=invalid\nThere is no tool "nope"; there are sleep, fault, down, echo.'),
    ],
)
async def test_faults_are_sentences(url: str, workers: dict[str, StubWorker], tool: str, text: str) -> None:
    workers[ONE].desk.entries.append(fail(1))
    async with session(url) as client:
        result = await client.call_tool(tool, {})
    assert result.is_error
    assert texts(result) == [text, "[agensh notices]\n[demo-worker2/FAIL +0.4m] content 1 (G1)"]
    call = workers[ONE].calls[-1]
    assert (call.tool, call.ok, call.summary) == (tool, False, text[:200])
    assert call.ended_at >= call.started_at


async def test_pending_in_the_boards_shape(url: str, workers: dict[str, StubWorker]) -> None:
    desk = workers[ONE].desk
    desk.messages.append(PendingMessage("e7", TWO, "hello", CLOCK.time()))
    desk.entries += [fail(seq) for seq in range(1, 101)]
    async with http(url) as client:
        first = (await client.get(f"/pending/{ONE}")).json()
        shown = len(first["notices"])
        assert (first["agent"], first["cursor"], first["more"]) == (ONE, 1, 101 - shown)
        assert first["notices"][:2] == [
            {"id": "e7", "text": "[demo-worker2/DM +0.0m] hello"},
            {"id": "g1", "text": "[demo-worker2/FAIL +0.4m] content 1 (G1)"},
        ]
        assert desk.acknowledged == []
        second = (await client.get(f"/pending/{ONE}", params={"ack": 1})).json()
        assert len(desk.acknowledged) == shown
        assert second["notices"][0]["id"] == f"g{shown}"
        assert (await client.get(f"/pending/{ONE}", params={"ack": "x"})).status_code == 422
        assert (await client.get(f"/pending/{ONE}", params={"room": 0})).json()["notices"] == []


async def test_a_host_of_64_workers_is_light(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 1.5 MB a worker, after every one has called."""
    workers = {f"demo-worker{number}": StubWorker(f"demo-worker{number}", CLOCK) for number in range(1, 65)}
    async with serving(create_mcp_app(workers, clock=CLOCK)) as base, http(base) as client:

        async def call(name: str) -> None:
            headers = {"authorization": f"Bearer token-of-{name}"}
            for method, params in (("tools/list", {}), ("tools/call", {"name": "chat_who"})):
                answer = await client.post(f"/mcp/{name}", json=rpc(method, params), headers=headers)
                assert answer.status_code == 200

        await call("demo-worker1")
        before = _resident()
        await asyncio.gather(*map(call, workers))
        grown = (_resident() - before) / 64
    with capsys.disabled():
        print(f"\nMCP endpoint: {grown:.0f} KiB a worker")  # noqa: T201 - a measurement
    assert grown < 1536


def _resident() -> int:
    status = Path(f"/proc/{os.getpid()}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def test_the_endpoint_knows_whether_a_cli_has_found_the_tools(url: str) -> None:
    async def seen(worker: str) -> int:
        async with http(url, f"token-of-{worker}") as client:
            count: int = (await client.get(f"/mcp/{worker}/seen")).json()["count"]
            return count

    async with http(url) as client:
        await client.post(f"/mcp/{ONE}", json=rpc("ping"))
        assert await seen(ONE) == 0
        await client.post(f"/mcp/{ONE}", json=rpc("tools/list"))
        assert await seen(ONE) == 1
        await client.post(f"/mcp/{ONE}", json=rpc("tools/call", {"name": "echo"}))
        assert await seen(ONE) == 2
    assert await seen(TWO) == 0
