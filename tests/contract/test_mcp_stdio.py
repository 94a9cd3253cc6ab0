"""`agensh mcp board` through the official client, on a real board."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from agensh.launch.ports import free_port
from tests.support.board_server import RunningBoard, running_board

COMMAND = [sys.executable, "-c", "from agensh.cli.mcp import app; app()", "board"]
NAMES = ["board_write", "board_read", "board_grep", "board_unfold", "board_release", "board_pending"]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBoard]:
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running


@asynccontextmanager
async def tools(board: RunningBoard, worker: str, **environment: str) -> AsyncIterator[ClientSession]:
    identity = {"AGENSH_BOARD_URL": board.url, "AGENSH_BOARD_TOKEN": board.token_for(worker)}
    parameters = StdioServerParameters(
        command=COMMAND[0], args=COMMAND[1:], env={**os.environ, **identity, **environment}
    )
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


async def call(client: ClientSession, tool: str, **arguments: Any) -> list[str]:
    result = await client.call_tool(tool, arguments)
    return [block.text.removeprefix("\n") for block in result.content if block.type == "text"]


async def test_the_boards_tools_and_notices(board: RunningBoard) -> None:
    async with tools(board, "ada") as ada, tools(board, "bob") as bob:
        assert [tool.name for tool in (await ada.list_tools()).tools] == NAMES
        written = await call(ada, "board_write", type="FAIL", content="tabs break the parser ✅")
        assert written[0].startswith("status=admitted label=G1 ")
        seen = await call(bob, "board_grep", query="zzz")
        assert seen[1:] == ["[agensh notices]\n[ada/FAIL +0.0m] tabs break the parser ✅ (G1)"]
        assert [len(await call(bob, "board_read")) for _ in range(3)] == [1, 1, 1]
        assert (await call(bob, "board_pending"))[0].startswith("status=ok pending=0")
        assert len(await call(ada, "board_read")) == 1
    async with board.client("bob") as client:
        assert (await client.pending("bob")).notices == ()


async def test_what_was_shown_but_not_proved_is_shown_again(board: RunningBoard) -> None:
    async with board.client("eve") as eve:
        await eve.write("FACT", "eve was here")
    for _ in range(2):
        async with tools(board, "carl") as carl:
            assert "eve was here" in (await call(carl, "board_grep", query="zzz"))[-1]


async def test_many_entries_are_counted_with_the_call_that_shows_them(board: RunningBoard) -> None:
    async with board.client("eve") as eve:
        for number in range(30):
            await eve.write("OBSERVED", f"{number} " + "x" * 90)
    async with tools(board, "dora") as dora:
        first = (await call(dora, "board_grep", query="zzz"))[-1]
        assert len(first) <= 2000
        assert " more: call board_read after=0" in first
        assert "eve/OBSERVED" in (await call(dora, "board_pending"))[0]
        assert (await call(dora, "board_read", after=0))[0].count("OBSERVED") == 30


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "AGENSH_BOARD_URL and AGENSH_BOARD_TOKEN are not set: start `agensh board serve`"),
        ({"AGENSH_BOARD_URL": "http://127.0.0.1:1"}, "AGENSH_BOARD_TOKEN is not set"),
        (
            {"AGENSH_BOARD_URL": "127.0.0.1:8660", "AGENSH_BOARD_TOKEN": "t"},
            "expected a URL such as http://127.0.0.1:8660",
        ),
        (
            {"AGENSH_BOARD_URL": "real", "AGENSH_BOARD_TOKEN": "t"},
            "AGENSH_BOARD_TOKEN is not valid on http://127.0.0.1:",
        ),
    ],
)
def test_a_wrong_environment_is_one_sentence(board: RunningBoard, environment: dict[str, str], sentence: str) -> None:
    if environment.get("AGENSH_BOARD_URL") == "real":
        environment = {**environment, "AGENSH_BOARD_URL": board.url}
    done = run(environment, b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_stdout_is_json_even_without_a_board() -> None:
    """The tools say that the board does not answer; whoever starts it later finds them working."""
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "board_unfold", "arguments": {"label": "x"}},
        },
    ]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENSH_")}
    identity = {"AGENSH_BOARD_URL": f"http://127.0.0.1:{free_port()}", "AGENSH_BOARD_TOKEN": "t"}
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**clean, **identity}
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        process.stdin.flush()
        answers = {answer["id"]: answer for answer in (json.loads(process.stdout.readline()) for _ in range(3))}
        process.stdin.close()
        assert process.stdout.read() == b""
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(20) == 0
    assert answers[3]["result"]["isError"] is True
    assert answers[3]["result"]["content"][0]["text"].startswith("status=invalid\nlabel is 'x'")


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def run(environment: dict[str, str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENSH_")}
    return subprocess.run(
        COMMAND, input=stdin, env={**clean, **environment}, capture_output=True, timeout=60, cwd=Path.cwd()
    )
