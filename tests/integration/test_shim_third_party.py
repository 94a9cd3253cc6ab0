"""MCP servers of others behind the shim: their tools work unchanged, and notices arrive.

The servers live in a virtual environment of their own, which is built when it is missing.
"""

from __future__ import annotations

import asyncio
import fcntl
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

from agensh.clients.board import BoardClient
from agensh.provision import provision
from agensh.rundir import RunDir
from tests.support.services import Services, running_services

SERVERS = ("mcp-server-mattermost==0.6.1", "gitea-mcp==0.1.2")
BUILD = Path(__file__).parents[2] / "build"
ONE, TWO = "third-worker1", "third-worker2"


@pytest.fixture(scope="module")
def commands() -> Path:
    """The folder of the servers' commands."""
    BUILD.mkdir(exist_ok=True)
    environment = BUILD / "third-party"
    stamp = environment / ("-".join(SERVERS) + ".installed")
    with (BUILD / "third-party.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
            pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            done = subprocess.run([*pip, *SERVERS], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"the servers cannot be installed: {done.stderr.strip().splitlines()[-1]}")
            stamp.touch()
    return environment / "bin"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


@pytest.fixture(scope="module")
def run(services: Services, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = services.new_run(tmp_path_factory.mktemp("runs") / "r1", "third")
    asyncio.run(provision(made, made.info(), made.secrets(), progress=lambda line: None))
    return made


@asynccontextmanager
async def server(run: RunDir, command: Path, *, shim: bool, **environment: str) -> AsyncIterator[ClientSession]:
    """The server of worker 1 with or without the shim, through the official client."""
    info, mine = run.info(), run.secrets().workers[ONE]
    identity = {
        "AGENSH_BOARD_URL": info.urls.board,
        "AGENSH_WORKER": ONE,
        "AGENSH_BOARD": info.board,
        "AGENSH_BOARD_TOKEN": mine.board_token,
    }
    wrapped = [sys.executable, "-m", "router.mcp.shim", "--", str(command)]
    start = wrapped if shim else [str(command)]
    parameters = StdioServerParameters(command=start[0], args=start[1:], env={**os.environ, **identity, **environment})
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


def environments(run: RunDir) -> dict[str, dict[str, str]]:
    info, mine = run.info(), run.secrets().workers[ONE]
    return {
        "mcp-server-mattermost": {"MATTERMOST_URL": info.urls.chat, "MATTERMOST_TOKEN": mine.chat_token},
        "gitea-mcp": {"GITEA_URL": info.urls.forge, "GITEA_TOKEN": mine.forge_token},
    }


CALLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "mcp-server-mattermost": (("get_me", {}), ("list_teams", {}), ("get_user", {"user_id": "x" * 26})),
    "gitea-mcp": (
        ("list_issues", {"owner": "third", "repo": "work"}),
        ("get_issue", {"owner": "third", "repo": "no", "index": 9}),
    ),
}


@pytest.mark.parametrize("name", list(CALLS))
async def test_its_tools_work_unchanged_and_notices_arrive(commands: Path, run: RunDir, name: str) -> None:
    environment = environments(run)[name]
    async with server(run, commands / name, shim=False, **environment) as client:
        tools = (await client.list_tools()).tools
        plain = [await client.call_tool(tool, arguments) for tool, arguments in CALLS[name]]
    info = run.info()
    async with (
        BoardClient(info.urls.board, run.secrets().workers[TWO].board_token, info.board) as board,
        server(run, commands / name, shim=True, **environment) as client,
    ):
        listed = (await client.list_tools()).tools
        assert [tool.model_copy(update={"output_schema": None}) for tool in tools] == listed
        assert [await client.call_tool(tool, arguments) for tool, arguments in CALLS[name]] == plain
        for (tool, arguments), before in zip(CALLS[name], plain, strict=True):
            written = await board.write("FAIL", f"{name} {tool} must not be used")
            result = await client.call_tool(tool, arguments)
            notice = result.content[-1]
            assert notice.type == "text"
            assert notice.text == (
                f"\n[agensh notices]\n[{TWO}/FAIL +0.0m] {name} {tool} must not be used ({written.label})"
            )
            assert result.is_error == before.is_error
            assert result.structured_content is None
            assert [block for block in before.content if block not in result.content] == []
            again = await client.call_tool(tool, arguments)
            assert [block.text for block in again.content if block.type == "text" and "notices" in block.text] == []
    async with BoardClient(info.urls.board, run.secrets().workers[ONE].board_token, info.board) as mine:
        assert (await mine.pending(ONE)).notices == ()
