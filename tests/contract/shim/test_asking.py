"""Whom the shim asks for notices, and what it does when there is no answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from router.mcp.notices import PendingMessage
from router.mcp.server import create_mcp_app
from tests.contract.shim.session import BLOCK, FAIL, PATIENCE, Session, call, message, result, write
from tests.support.pending_server import PendingServer
from tests.support.queues import until
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker


@pytest.mark.parametrize("mode", ["hang", "500", "404", "garbage", "401"])
def test_a_board_that_fails_costs_no_result(start: Callable[..., Session], board: PendingServer, mode: str) -> None:
    board.post(1, FAIL)
    board.mode = mode
    answers = [message(result(n)) for n in range(1, 101)]
    session = start(*[step for answer in answers for step in (["read", 1], write(answer))], ["drain"])
    started = time.monotonic()
    for number, answer in enumerate(answers, start=1):
        session.send(call(number))
        assert session.line() == answer
    assert time.monotonic() - started < 5
    assert len(board.queries) <= 3
    if mode != "hang":  # which shows only after the time-out
        assert b"no notices from 127.0.0.1 for now" in session.stderr.readline()


def test_no_board_at_all(start: Callable[..., Session]) -> None:
    session = start(["read", 1], write(message(result(1))), ["drain"], AGENSH_BOARD_URL="http://127.0.0.1:1")
    session.send(call(1))
    assert session.line() == message(result(1))


def test_a_closed_connection_is_opened_again(start: Callable[..., Session], board: PendingServer) -> None:
    board.mode = "close"
    session = start(*[step for n in (1, 2, 3) for step in (["read", 1], write(message(result(n))))], ["drain"])
    for number in (1, 2, 3):
        board.post(number, f"[demo-worker2/FACT +0.1m] n{number} (G{number})")
        session.send(call(number))
        assert f"n{number} (G{number})" in json.loads(session.line())["result"]["content"][-1]["text"]


def test_the_pending_url_wins(start: Callable[..., Session], board: PendingServer) -> None:
    board.post(1, FAIL)
    session = start(
        ["read", 1],
        write(message(result(1))),
        ["drain"],
        AGENSH_BOARD_URL="",
        AGENSH_WORKER="",
        AGENSH_BOARD_TOKEN="",
        AGENSH_PENDING_URL=f"{board.url}/pending/other%20name",
        AGENSH_MCP_TOKEN=board.token,
    )
    session.send(call(1))
    assert BLOCK in json.loads(session.line())["result"]["content"]
    assert board.queries[0]["path"] == "/pending/other%20name"


async def test_direct_messages_come_from_the_node_host(start: Callable[..., Session]) -> None:
    """The host hands out once and hears with the next call that it arrived."""
    clock = SystemClock()
    worker = StubWorker("demo-worker1", clock)
    worker.desk.messages.append(PendingMessage("e7", "demo-worker2", "yours is `sort`", clock.time()))
    worker.desk.entries += [Entry(1, "demo-worker2", EntryType.FAIL, "tabs", clock.time())]
    async with serving(create_mcp_app({worker.name: worker}, clock=clock)) as url:
        session = start(
            *[step for n in (1, 2, 3) for step in (["read", 1], write(message(result(n))))],
            ["drain"],
            AGENSH_PENDING_URL=f"{url}/pending/demo-worker1",
            AGENSH_MCP_TOKEN=worker.token,
        )

        async def tool_call(number: int) -> list[str]:
            session.send(call(number))
            line = await asyncio.to_thread(session.line)
            return [block["text"].strip() for block in json.loads(line)["result"]["content"][1:]]

        assert await tool_call(1) == [
            "[agensh notices]\n[demo-worker2/DM +0.0m] yours is `sort`\n[demo-worker2/FAIL +0.0m] tabs (G1)"
        ]
        assert worker.desk.acknowledged == []
        assert await tool_call(2) == []
        await until(lambda: worker.desk.acknowledged == ["e7", "g1"], "the second call proved the first one's notices")
        worker.desk.entries += [Entry(2, "demo-worker2", EntryType.FACT, "spaces", clock.time())]
        assert await tool_call(3) == ["[agensh notices]\n[demo-worker2/FACT +0.0m] spaces (G2)"]
        session.stdin.close()
        await asyncio.to_thread(session.process.wait, PATIENCE)
