"""Mattermost's own JavaScript client against the chat: REST, and a websocket that survives a cut."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.chat.world import World, ok
from tests.support.tcp_proxy import tcp_proxy

JS = Path(__file__).with_name("js")
PATIENCE = 30.0


@pytest.fixture(scope="session")
def node() -> str:
    """Install the packages of the lock file once and return node's path."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        pytest.skip("node and npm are not installed")
    stamp, lock_file = JS / "node_modules" / ".package-lock.json", JS / "package-lock.json"
    with (JS / ".install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.stat().st_mtime < lock_file.stat().st_mtime:
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=JS, check=True, timeout=110, stdout=subprocess.DEVNULL)
            stamp.touch()
    return found


class Lines:
    """What the listener said."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self.said: list[dict[str, Any]] = []

    async def until(self, kind: str) -> None:
        """Read up to a line of that kind."""
        while (await self._next())["kind"] != kind:
            pass

    async def until_posts(self, count: int) -> None:
        """Read until that many posts have come in all."""
        while len(self.posts()) < count:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            line = await self._stream.readline()
        assert line, "the listener ended"
        said: dict[str, Any] = json.loads(line)
        self.said.append(said)
        return said

    def events(self) -> list[dict[str, Any]]:
        """Return the events heard so far."""
        return [said["message"] for said in self.said if said["kind"] == "event"]

    def posts(self) -> list[str]:
        """Return the ids of the posts heard so far."""
        return [json.loads(event["data"]["post"])["id"] for event in self.events() if event["event"] == "posted"]


@asynccontextmanager
async def _listener(node: str, url: str, token: str) -> AsyncIterator[Lines]:
    process = await asyncio.create_subprocess_exec(
        node,
        str(JS / "listen.js"),
        url,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"CHAT_TOKEN": token},
        limit=2**20,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Lines(process.stdout)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def test_the_websocket_client_resumes_after_a_cut_with_no_gap_and_no_repeat(world: World, node: str) -> None:
    worker, other = world.worker(), world.worker()
    channel = world.channel["id"]
    async with (
        tcp_proxy(world.chat.port) as proxy,
        _listener(node, f"http://127.0.0.1:{proxy.port}", worker.token) as heard,
    ):
        await heard.until("connected")
        made = [other.post(channel, f"before {number}")["id"] for number in range(5)]
        await heard.until_posts(5)
        for round_number in range(3):
            proxy.refuse = True
            assert proxy.cut() > 0
            await heard.until("closed")
            await world.until_offline(worker.id)
            made += [other.post(channel, f"away {round_number}.{number}")["id"] for number in range(5)]
            proxy.refuse = False
            await heard.until("reconnected")
            made.append(other.post(channel, f"back {round_number}")["id"])
            await heard.until_posts(len(made))
        assert proxy.accepted >= 4
    assert heard.posts() == made
    assert [event["seq"] for event in heard.events()] == list(range(len(made) + 1)), "hello, then every post"
    assert "missed" not in {said["kind"] for said in heard.said}


async def test_the_websocket_client_is_told_when_it_cannot_resume(world: World, node: str) -> None:
    worker, other = world.worker(), world.worker()
    async with (
        tcp_proxy(world.chat.port) as proxy,
        _listener(node, f"http://127.0.0.1:{proxy.port}", worker.token) as heard,
    ):
        await heard.until("connected")
        other.post(world.channel["id"], "before")
        await heard.until_posts(1)
        proxy.refuse = True
        proxy.cut()
        await heard.until("closed")
        await world.until_offline(worker.id)
        for number in range(257):
            other.post(world.channel["id"], f"away {number}")
        proxy.refuse = False
        await heard.until("missed")
        last = other.post(world.channel["id"], "after")["id"]
        await heard.until_posts(2)
    assert heard.posts()[1] == last
    assert [event["seq"] for event in heard.events()] == [0, 1, 0, 1]


def test_the_rest_client_does_what_a_worker_does(world: World, node: str) -> None:
    name, password = f"{world.tag}-js", "long-enough-1"
    fields = {"username": name, "email": f"{name}@example.com", "password": password}
    user = ok(world.admin.post("users", json=fields))
    ok(world.admin.post(f"teams/{world.team['id']}/members", json={"team_id": world.team["id"], "user_id": user["id"]}))
    ok(world.admin.post(f"channels/{world.channel['id']}/members", json={"user_id": user["id"]}))
    ok(world.admin.put(f"users/{user['id']}/roles", json={"roles": "system_user system_admin"}))
    peer = world.worker()
    done = subprocess.run(
        [node, str(JS / "rest.js"), world.chat.url, name, world.channel["id"], peer.id],
        env=os.environ | {"CHAT_PASSWORD": password},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["me"]["id"] == user["id"]
    assert result["again"]["id"] == result["post"]["id"]
    assert result["direct"]["name"] == "__".join(sorted([user["id"], peer.id]))
    assert result["edited"]["message"] == "edited"
    assert result["edited"]["edit_at"] > 0
    assert result["listing"]["order"] == []
    assert [team["id"] for team in result["teams"]] == [world.team["id"]]
    assert result["refusal"] == {"status": 404, "id": "app.channel.get.existing.app_error"}
    assert result["version"].startswith("11.")
    assert result["config"]["Version"].startswith("11.")
    assert {profile["id"] for profile in result["users"]} == {user["id"], peer.id, world.admin_id}
    assert result["preferences"] == []
    assert result["bot"]["user_id"] == peer.id
