"""The board's tools of an MCP endpoint, on a real board."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agensh.entries import Entry, EntryType
from router.mcp.server import create_mcp_app
from tests.support.board_server import RunningBoard, running_board
from tests.support.mcp_client import CLOCK, ONE, TWO, http, rpc, session, two_workers
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

NAMES = {
    *("board_write", "board_read", "board_grep", "board_unfold", "board_release", "board_pending"),
    *("chat_post", "chat_dm", "chat_read", "chat_who"),
    *("forge_issues", "forge_issue", "forge_issue_open", "forge_comment", "forge_pulls", "forge_pull"),
    *("forge_pull_open", "forge_pull_update", "forge_pull_merge", "forge_main"),
}


@pytest.fixture
def workers() -> dict[str, StubWorker]:
    return two_workers()


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
