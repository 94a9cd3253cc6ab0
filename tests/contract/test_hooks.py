"""The hook of a CLI, as the CLI runs it: a shell command with JSON on its standard input, against a real endpoint."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from adapters.base import WorkerLaunch
from adapters.hook_file import hook_command
from agensh.clock import SystemClock
from router.mcp.notices import PendingMessage
from router.mcp.requests import BODY_LIMIT
from router.mcp.server import create_mcp_app
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
ONE, TWO = "demo-worker1", "demo-worker2"
Style = Literal["claude", "copilot"]
STYLES: tuple[Style, ...] = ("claude", "copilot")


@pytest.fixture
def worker() -> StubWorker:
    # What may stand in a token is ours to choose; the file format has to carry all of it.
    return StubWorker(ONE, CLOCK, token='to"k\\en')


@pytest.fixture
async def url(worker: StubWorker) -> AsyncIterator[str]:
    async with serving(create_mcp_app({ONE: worker}, clock=CLOCK)) as base:
        yield base


def launch(folder: Path, worker: StubWorker, hooks_url: str) -> WorkerLaunch:
    home = folder / "it's a home"
    return WorkerLaunch(ONE, home, folder, folder, folder / "log", "", worker.token, hooks_url=hooks_url)


async def run(command: str, stdin: bytes, home: Path) -> tuple[int | None, str]:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "http_proxy": "http://127.0.0.1:1"}
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    output, _ = await asyncio.wait_for(process.communicate(stdin), 30)
    return process.returncode, output.decode()


def message(ref: str, text: str) -> PendingMessage:
    return PendingMessage(ref, TWO, text, CLOCK.time())


@pytest.mark.parametrize("style", STYLES)
async def test_a_hook_shows_what_is_pending_once(tmp_path: Path, url: str, worker: StubWorker, style: Style) -> None:
    given = launch(tmp_path, worker, f"{url}/hooks/{ONE}")
    command = hook_command(given, style)
    assert worker.token not in command
    files = [path for path in given.home.rglob("*") if path.is_file()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600]
    (given.home / ".curlrc").write_text('url = "http://127.0.0.1:1/"\n')
    body = json.dumps({"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "text": "\u2028 ü"}).encode()
    assert await run(command, body, given.home) == (0, "{}")
    worker.desk.messages.append(message("e1", 'say "hello" & <go>'))
    code, output = await run(command, body, given.home)
    answer: dict[str, Any] = json.loads(output)
    inner = answer if style == "copilot" else answer["hookSpecificOutput"]
    assert code == 0
    assert inner.pop("additionalContext").splitlines()[1].endswith('say "hello" & <go>')
    assert inner == ({} if style == "copilot" else {"hookEventName": "PostToolUseFailure"})
    assert await run(command, body, given.home) == (0, "{}")
    # Only the next call, or the end of the turn, proves that it arrived.
    assert (worker.desk.handed_out, worker.desk.acknowledged) == (["e1"], [])


async def test_a_hook_and_a_tool_result_show_nothing_twice(tmp_path: Path, url: str, worker: StubWorker) -> None:
    command = hook_command(launch(tmp_path, worker, f"{url}/hooks/{ONE}"), "claude")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no_such_tool", "arguments": {}}}
    headers = {"Authorization": f"Bearer {worker.token}", "Accept": "application/json"}
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        worker.desk.messages.append(message("e1", "first"))
        assert "first" in (await run(command, b"{}", tmp_path))[1]
        worker.desk.messages.append(message("e2", "second"))
        answered = (await http.post(f"/mcp/{ONE}", json=call, headers=headers)).text
        assert "second" in answered
        assert "first" not in answered
        assert worker.desk.acknowledged == ["e1"]
        assert await run(command, b"{}", tmp_path) == (0, "{}")


async def test_a_hook_that_cannot_ask_says_nothing_and_succeeds(tmp_path: Path, url: str, worker: StubWorker) -> None:
    worker.desk.messages.append(message("e1", "kept"))
    gone = launch(tmp_path, worker, f"http://127.0.0.1:1/hooks/{ONE}")
    assert await run(hook_command(gone, "claude"), b"{}", tmp_path) == (0, "{}\n")
    stranger = StubWorker(ONE, CLOCK, token="wrong")
    assert await run(hook_command(launch(tmp_path, stranger, f"{url}/hooks/{ONE}"), "claude"), b"", tmp_path) == (
        0,
        "{}\n",
    )
    command = hook_command(launch(tmp_path, worker, f"{url}/hooks/{ONE}"), "claude")
    assert await run(command, b" " * (BODY_LIMIT + 1), tmp_path) == (0, "{}\n")
    assert worker.desk.handed_out == []


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"hook_event_name": 7}', b'{"hook_event_name": "a b"}'])
async def test_without_an_event_it_is_post_tool_use(url: str, worker: StubWorker, body: bytes) -> None:
    worker.desk.messages.append(message("e1", "x"))
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        headers = {"Authorization": f"Bearer {worker.token}"}
        answer = await http.post(f"/hooks/{ONE}/claude", content=body, headers=headers)
        assert answer.json()["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
        unknown = await http.post(f"/hooks/{ONE}/codex", headers=headers)
        assert unknown.status_code == 404
        assert unknown.json() == {"error": "There are no hooks of style 'codex'; it is one of claude, copilot."}


def test_no_hooks_where_none_are_wanted(tmp_path: Path, worker: StubWorker) -> None:
    given = launch(tmp_path, worker, "")
    assert hook_command(given, "claude") == ""
    assert not given.home.exists()
