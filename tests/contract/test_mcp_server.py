"""The MCP endpoints of a host, through the official client and through raw HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from router.mcp.notices import PendingMessage
from router.mcp.server import create_mcp_app
from router.tools.registry import Call, Tool
from tests.support.board_server import RunningBoard, running_board
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
Mode = Literal["legacy", "auto"]
ONE, TWO = "demo-worker1", "demo-worker2"
NAMES = {
    *("board_write", "board_read", "board_grep", "board_unfold", "board_release", "board_pending"),
    *("chat_post", "chat_dm", "chat_read", "chat_who"),
    *("forge_issues", "forge_issue", "forge_issue_open", "forge_comment", "forge_pulls", "forge_pull"),
    *("forge_pull_open", "forge_pull_update", "forge_pull_merge", "forge_main"),
}


def fail(seq: int, worker: str = TWO) -> Entry:
    return Entry(seq, worker, EntryType.FAIL, f"content {seq}", CLOCK.time() - 24)


@pytest.fixture
def workers() -> dict[str, StubWorker]:
    return {name: StubWorker(name, CLOCK, peers=tuple({ONE, TWO} - {name})) for name in (ONE, TWO)}


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


def rpc(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def http(base: str, token: str = f"token-of-{ONE}", **headers: str) -> httpx.AsyncClient:
    accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    return httpx.AsyncClient(
        base_url=base, trust_env=False, headers={**accept, "authorization": f"Bearer {token}", **headers}
    )


@asynccontextmanager
async def session(base: str, worker: str = ONE, mode: Mode = "legacy") -> AsyncIterator[mcp.Client]:
    """The official client; `mode` is the era of the protocol it speaks."""
    headers = {"authorization": f"Bearer token-of-{worker}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http_client:
        transport = streamable_http_client(f"{base}/mcp/{worker}", http_client=http_client)
        async with mcp.Client(transport, mode=mode) as client:
            yield client


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


async def test_a_client_that_left_gets_no_notice(url: str, workers: dict[str, StubWorker]) -> None:
    """What an answer nobody reads would have shown stays pending."""
    worker = workers[ONE]
    worker.desk.entries.append(fail(1))
    async with http(url) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"/mcp/{ONE}", json=rpc("tools/call", {"name": "sleep"}), timeout=0.1)
        async with asyncio.timeout(10):
            await worker.recorded.wait()
        assert worker.desk.handed_out == []
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


# --- the board's tools on a real board ---


@pytest.fixture
def board(tmp_path: Path) -> Any:
    with running_board(tmp_path) as running:
        yield running


Ask = Callable[..., Any]


@pytest.fixture
async def ask(board: RunningBoard, workers: dict[str, StubWorker]) -> AsyncIterator[Ask]:
    async with AsyncExitStack() as stack:
        for name, worker in workers.items():
            worker._board = await stack.enter_async_context(board.client(name))
        base = await stack.enter_async_context(serving(create_mcp_app(workers, clock=CLOCK)))
        clients = {name: await stack.enter_async_context(http(base, f"token-of-{name}")) for name in workers}

        async def call(tool: str, worker: str = ONE, **arguments: Any) -> tuple[bool, str]:
            body = rpc("tools/call", {"name": tool, "arguments": arguments})
            result = (await clients[worker].post(f"/mcp/{worker}", json=body)).json()["result"]
            return result["isError"], "".join(block["text"] for block in result["content"])

        yield call


async def test_every_tool_is_described(workers: dict[str, StubWorker]) -> None:
    async with serving(create_mcp_app(workers, clock=CLOCK)) as base, session(base) as client:
        listed = (await client.list_tools()).tools
    assert {tool.name for tool in listed} == NAMES
    for tool in listed:
        assert tool.description is not None
        assert len(tool.description) > 40, tool.name
        assert tool.input_schema["additionalProperties"] is False
        assert all(value["description"] for value in tool.input_schema["properties"].values())


async def test_the_boards_tools(ask: Ask) -> None:
    error, text = await ask(
        "board_write", type="fail", content="tabs break it ✅→ 🫠 𠜎", detail="long\nstory", key="k1"
    )
    assert (error, text.splitlines()[0]) == (False, "status=admitted label=G1 overlaps=0")
    _, text = await ask("board_write", type="FAIL", content="tabs break it ✅→ 🫠 𠜎", detail="long\nstory", key="k1")
    assert text.splitlines()[0] == "status=admitted label=G1 overlaps=0 repeated=1"
    _, text = await ask("board_read")
    assert text.splitlines() == [
        "status=ok entries=1 last=1",
        "G1 [demo-worker1, FAIL, 0.0 min ago] tabs break it ✅→ 🫠 𠜎 (+detail)",
    ]
    _, text = await ask("board_unfold", label="g1")
    assert text.splitlines()[0] == "status=ok label=G1 detail=10"
    assert text.endswith("\n    long\n    story")
    _, text = await ask("board_grep", query="TABS&break,zzz")
    assert text.splitlines()[0] == "status=ok entries=1 more=0"
    _, text = await ask("board_grep", query="100%")
    assert text.startswith("status=ok entries=0\n")
    _, text = await ask("board_read", after=1)
    assert text == "status=ok entries=0 last=1\nNo entries after G1."


async def test_overlapping_claims_are_told_and_released(ask: Ask) -> None:
    await ask("board_write", type="CLAIM", content="sort: -k and -t")
    _, text = await ask("board_write", TWO, type="CLAIM", content="sort: -k and -t options")
    assert text.splitlines()[0] == "status=admitted label=G2 overlaps=1"
    assert "G1 [demo-worker1] sort: -k and -t" in text
    error, text = await ask("board_release", label="G1")
    assert (error, text.splitlines()[0]) == (False, "status=released label=G1")
    error, _ = await ask("board_release", label="G2")
    assert error
    _, text = await ask("board_read", type="CLAIM")
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["G2"]


REFUSALS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("board_write", {"type": "FAIL"}, "content is missing; board_write takes type, content, detail, key."),
    ("board_write", {"type": "NOTE", "content": "x"}, 'type is "NOTE"; allowed: "OBSERVED", "FACT", "FAIL"'),
    ("board_write", {"type": "FAIL", "content": " "}, "content is empty"),
    ("board_write", {"type": "FAIL", "content": ["x"]}, "content must be a string, not a list."),
    ("board_write", {"type": "FAIL", "content": "x", "text": "y"}, 'board_write has no argument "text"'),
    ("board_write", {"type": "FAIL", "content": "🫠" * 101}, "101"),
    ("board_write", {"type": "PATCH_SUMMARY", "content": "files=a | idea=b | evidence=tbd"}, "evidence"),
    ("board_read", {"limit": 0}, "limit is 0; it must be at least 1."),
    ("board_read", {"limit": "many"}, 'limit must be an integer, not "many".'),
    ("board_read", {"after": True}, "after must be an integer, not a boolean."),
    ("board_read", {"after": 1.5}, "after must be an integer, not 1.5."),
    ("board_unfold", {"label": "twelve"}, "expected the label of an entry, e.g. G12."),
    ("board_unfold", {"label": "G999"}, "G999"),
    ("board_grep", {"query": ""}, "query is empty"),
)


async def test_refusals_say_what_is_allowed(ask: Ask) -> None:
    for tool, arguments, sentence in REFUSALS:
        error, text = await ask(tool, **arguments)
        assert error, (tool, arguments)
        assert text.startswith("status=")
        assert sentence in text
        assert "Traceback" not in text


async def test_forgiving_arguments(ask: Ask) -> None:
    await ask("board_write", type=" Fact ", content="x")
    for arguments in ({"limit": "5"}, {"limit": 5.0}, {"limit": None}, {"type": ""}, {"after": "0"}):
        error, text = await ask("board_read", **arguments)
        assert not error, text
        assert text.splitlines()[0] == "status=ok entries=1 last=1"


async def test_pending_shows_what_was_counted(ask: Ask, workers: dict[str, StubWorker]) -> None:
    workers[ONE].desk.entries += [Entry(seq, TWO, EntryType.FACT, "x" * 100, CLOCK.time()) for seq in range(1, 61)]
    _, text = await ask("chat_who")
    shown = text.count("/FACT")
    assert text.endswith(f"{60 - shown} more: call board_pending")
    _, text = await ask("board_pending")
    assert text.splitlines()[0] == f"status=ok pending={60 - shown}"
    assert text.count("/FACT") == 60 - shown
    _, text = await ask("board_pending")
    assert text == "status=ok pending=0\nNothing waits for you."


async def test_a_long_board_is_cut_to_its_newest_entries(ask: Ask, board: RunningBoard) -> None:
    async with board.client(TWO) as other:
        await asyncio.gather(
            *(other.write("PATCH_SUMMARY", f"files=f{n} | idea={'i' * 260} | evidence=ok {n}") for n in range(200))
        )
    _, text = await ask("board_read")
    assert len(text) < 42_000
    lines = text.splitlines()
    assert lines[1].endswith("older entries left out to keep this short: board_grep finds them, or narrow with type=.")
    assert lines[-1].startswith("G200 ")
    seen, after = 0, 1
    while True:
        _, text = await ask("board_read", after=after)
        first = dict(word.split("=") for word in text.split("\n", 1)[0].split())
        seen, after = seen + int(first["entries"]), int(first["last"])
        if "Newer entries may follow" not in text:
            break
        assert text.endswith(f"board_read(after={after}).")
    assert (seen, after) == (199, 200)


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
