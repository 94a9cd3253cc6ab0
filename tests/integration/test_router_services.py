"""A node host over the real embedded services: what happens there reaches a worker, in its turn or with the next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.base import Outcome, Text, TurnEnd, TurnItem
from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import SystemClock
from agensh.entries import EntryType
from agensh.launch.ports import free_port
from agensh.provision.all import provision
from agensh.rundir import RunDir, WorkerSecrets
from router.backends import ServiceBackends
from router.node import NodeHost
from router.workspace import clone_url
from tests.integration.test_router_node import count, rows, running
from tests.support.router_stage import NoRuntime, Stage, StageAdapter
from tests.support.services import Services, running_services


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


async def new_run(services: Services, folder: Path, team: str) -> RunDir:
    run = services.new_run(folder, team)
    info = run.info()
    urls = info.urls.model_copy(update={"node": f"http://127.0.0.1:{free_port()}"})
    clock = info.spec.clock.model_copy(update={"stagger": 0.0})
    run.write_info(info.model_copy(update={"urls": urls, "spec": info.spec.model_copy(update={"clock": clock})}))
    await provision(run, run.info(), run.secrets(), progress=lambda _line: None)
    return run


async def call(run: RunDir, worker: str, tool: str, **arguments: Any) -> str:
    """Call a tool as the worker's CLI does; return all its text."""
    token = run.secrets().workers[worker].mcp_token
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        response = await client.post(f"{run.info().urls.node}/mcp/{worker}", json=body, headers=headers)
    assert response.status_code == 200, response.text
    result = json.loads(response.text)["result"]
    assert not result.get("isError"), result
    return "\n".join(block["text"] for block in result["content"])


async def test_messages_entries_and_comments_find_their_way(services: Services, tmp_path: Path) -> None:
    run = await new_run(services, tmp_path / "r1", "alpha")
    info, secrets = run.info(), run.secrets()
    me, peer = info.spec.worker_names
    results: list[str] = []
    read: list[str] = []
    go = asyncio.Event()

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("working")
        if adapter.launch.worker == me and count(stage, me) == 1:
            await go.wait()
            for _ in range(200):
                results.append(await call(run, me, "chat_who"))
                if "[agensh notices]" in results[-1] and "tabs break it" in "".join(results):
                    break
                await asyncio.sleep(0.05)
            await call(run, me, "board_write", type="FACT", content="seen it")
            async with MattermostClient(info.urls.chat, token=secrets.workers[peer].chat_token) as chat:
                await chat.direct_message(me, "read by itself")
            await stage.until(lambda: host.routers[me].desk.oldest_unseen() is not None, 30)
            read.append(await call(run, me, "chat_read", with_=peer))
            read.append(await call(run, me, "chat_who"))
        yield TurnEnd(Outcome.COMPLETED)

    stage = Stage(turn)
    host = NodeHost(
        run, info, secrets, adapter_factory=stage.adapter, runtime=NoRuntime(), clock=SystemClock(),
        workers=[me, peer], backends=ServiceBackends(info, secrets, SystemClock()), grace=2.0,
    )  # fmt: skip
    theirs = secrets.workers[peer]
    async with running(host):
        await stage.until(lambda: count(stage, me) >= 1 and count(stage, peer) >= 1, 60)
        async with (
            MattermostClient(info.urls.chat, token=theirs.chat_token) as chat,
            BoardClient(info.urls.board, theirs.board_token, info.board) as board,
        ):
            await chat.direct_message(me, "I edit the dispatch file,\n[event] please wait")
            await stage.until(lambda: host.routers[me].desk.oldest_unseen() is not None, 30)
            await board.write(EntryType.FAIL, "tabs break it")
        go.set()
        await stage.until(lambda: host.routers[me].state == "idle", 60)
        said = "".join(results)
        assert said.count("I edit the dispatch file,") == 1
        assert said.count("tabs break it") == 1
        assert f"[{peer}/DM" in said
        assert f"[{peer}/FAIL" in said
        turns = count(stage, me)
        async with GiteaClient(info.urls.forge, token=theirs.forge_token) as forge:
            await forge.create_comment(info.owner, info.repository, 1, f"@{me} what about tabs?")
        await stage.until(lambda: count(stage, me) > turns, 60)
    prompt = stage.prompts[me][turns]
    assert "source=gitea kind=mention" in prompt
    assert "what about tabs?" in prompt
    assert "I edit the dispatch" not in prompt
    messages = rows(run, f"select state, via from events where kind = 'direct_message' and worker = '{me}'")
    assert messages == [{"state": "sent", "via": "notice"}, {"state": "withdrawn", "via": "read"}]
    assert read[0].count("read by itself") == 1
    assert "/DM" not in read[0] + read[1]
    shown = rows(run, f"select ref, via, acked_at from notices where worker = '{me}' and via = 'mcp'")
    assert len(shown) == 2
    assert all(row["acked_at"] is not None for row in shown)
    calls = rows(run, f"select tool, kind, turn_id, ok from tool_calls where worker = '{me}'")
    assert {(row["tool"], row["kind"], row["ok"]) for row in calls} == {
        ("chat_who", "mcp", 1),
        ("board_write", "mcp", 1),
        ("chat_read", "mcp", 1),
    }
    assert all(row["turn_id"] is not None for row in calls)
    # The first turn wrote an entry, so it earned no reminder.
    first = rows(run, f"select min(id) as id from turns where worker = '{me}'")[0]["id"]
    assert not rows(run, f"select id from events where dedupe_key = 'control:publish_reminder:{first}'")


async def test_a_worker_can_clone_and_push_with_its_environment_and_sees_no_other_secret(
    services: Services, tmp_path: Path
) -> None:
    run = await new_run(services, tmp_path / "r1", "beta")
    info, secrets = run.info(), run.secrets()
    me, peer = info.spec.worker_names
    stage = Stage()
    host = NodeHost(
        run, info, secrets, adapter_factory=stage.adapter, runtime=NoRuntime(), clock=SystemClock(),
        workers=[me], backends=ServiceBackends(info, secrets, SystemClock()), grace=2.0,
    )  # fmt: skip
    async with running(host):
        await stage.until(lambda: count(stage, me) >= 1, 60)
        launch = stage.adapters[me].launch
        script = f"""set -e
            git clone -q {clone_url(info)} clone && cd clone && git switch -q -c {me}/area && echo x > x
            git add x && git commit -qm work && git push -q origin {me}/area && git log -1 --format='%an <%ae>'"""
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, cwd=launch.work, env=dict(launch.env),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert out.decode().strip() == f"{me} <{me}@127.0.0.1>"
    hidden = secrets_of(secrets.workers[peer]) | {secrets.forge_admin.password, secrets.chat_admin.password}
    hidden |= {secrets.board_admin, secrets.workers[me].forge_password}
    visible = "\n".join(launch.env.values()) + "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in launch.home.rglob("*") if path.is_file()
    )
    visible += (launch.work / "clone/.git/config").read_text(encoding="utf-8")
    assert not {secret for secret in hidden if secret and secret in visible}
    assert secrets.workers[me].forge_token not in (launch.home / ".gitconfig").read_text(encoding="utf-8")
    token_file = launch.home / ".config/agensh/forge-token"
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert launch.home.stat().st_mode & 0o777 == 0o700


def secrets_of(worker: WorkerSecrets) -> set[str]:
    return {worker.forge_password, worker.forge_token, worker.chat_token, worker.board_token, worker.mcp_token}
