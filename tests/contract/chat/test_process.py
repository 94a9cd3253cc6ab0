"""The chat as a process: killed, restarted, stopped, and started where it cannot start."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.chat.sockets import listening
from tests.contract.chat.world import World, make_world, ok
from tests.support.chat_server import RunningChat, running_chat


@pytest.fixture
def own_chat(tmp_path: Path) -> Iterator[RunningChat]:
    if os.environ.get("AGENSH_MATTERMOST_URL"):
        pytest.skip("a server of somebody else is not killed")
    with running_chat(tmp_path) as running:
        yield running


@pytest.fixture
def world(own_chat: RunningChat) -> Iterator[World]:
    with make_world(own_chat) as made:
        yield made


def test_acknowledged_posts_survive_kill_9_and_ids_stay_unique(own_chat: RunningChat, world: World) -> None:
    worker = world.worker()
    acknowledged: list[str] = []
    enough = threading.Event()

    def write() -> None:
        with httpx.Client(
            base_url=f"{own_chat.url}/api/v4/", headers={"Authorization": f"Bearer {worker.token}"}
        ) as own:
            for number in range(100_000):
                try:
                    answer = own.post("posts", json={"channel_id": world.channel["id"], "message": f"m{number}"})
                except httpx.TransportError:
                    return
                if answer.status_code == 201:
                    acknowledged.append(answer.json()["id"])
                    if len(acknowledged) >= 150:
                        enough.set()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for thread in writers:
        thread.start()
    assert enough.wait(30)
    own_chat.kill()
    for thread in writers:
        thread.join(10)
    own_chat.start()
    stored: list[str] = []
    for page in range(1000):
        query = {"per_page": 200, "page": page}
        order = ok(worker.rest.get(f"channels/{world.channel['id']}/posts", params=query))["order"]
        stored += order
        if len(order) < 200:
            break
    assert len(acknowledged) == len(set(acknowledged)) >= 150
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    later = [worker.post(world.channel["id"], f"later {number}")["id"] for number in range(20)]
    assert not set(later) & set(stored)
    channel = ok(worker.rest.get(f"channels/{world.channel['id']}"))
    listed = [stored[start : start + 1000] for start in range(0, len(stored), 1000)]
    posts = [post for ids in listed for post in ok(worker.rest.post("posts/ids", json=ids))]
    written = sum(post["type"] == "" for post in posts)
    assert channel["total_msg_count"] == written + len(later), "counts agree with the posts"


def test_everything_but_live_connections_survives_a_restart(own_chat: RunningChat, world: World) -> None:
    worker, other = world.worker(), world.worker()
    direct = ok(worker.rest.post("channels/direct", json=[worker.id, other.id]))
    worker.post(world.channel["id"], f"@{other.name}", pending_post_id=f"{worker.id}:1")
    before = {
        path: ok(other.rest.get(path))
        for path in ("users/me", "users/me/teams", f"users/me/channels/{world.channel['id']}/unread")
    }
    assert own_chat.stop() == 0
    own_chat.start()
    assert {path: ok(other.rest.get(path)) for path in before} == before
    assert ok(worker.rest.post("channels/direct", json=[other.id, worker.id]))["id"] == direct["id"]
    again = worker.post(world.channel["id"], "again", pending_post_id=f"{worker.id}:1")
    assert again["message"] == "again", "the keys of sent posts are in memory only, as on the real server"


async def test_a_connection_of_before_the_restart_gets_a_new_one(own_chat: RunningChat, world: World) -> None:
    worker = world.worker()
    async with listening(own_chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        assert await asyncio.to_thread(own_chat.stop) == 0
        assert "graceful shutdown exceeded" not in own_chat.log(), "open websockets do not hold up the stop"
        assert (await listener.closed())[0] in {1001, 1006, 1012}
    await asyncio.to_thread(own_chat.start)
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
    async with listening(own_chat.url, worker.token, query=query) as listener:
        fresh = await listener.frame()
        assert (fresh["event"], fresh["seq"]) == ("hello", 0)
        assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]


def _serve(data: Path, port: int) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom pathlib import Path\nfrom agensh.embedded.chat.server import serve\n"
        "from agensh.errors import UsageError\n"
        "try:\n    serve(Path(sys.argv[1]), '127.0.0.1', int(sys.argv[2]))\n"
        "except UsageError as error:\n    sys.exit(str(error))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(data), str(port)], capture_output=True, text=True, timeout=30, check=False
    )


def test_a_port_in_use_is_named_in_one_sentence(own_chat: RunningChat, tmp_path: Path) -> None:
    done = _serve(tmp_path / "other", own_chat.port)
    assert done.returncode == 1
    assert str(own_chat.port) in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_folder_has_one_server(own_chat: RunningChat) -> None:
    assert own_chat.data is not None
    done = _serve(own_chat.data, 0)
    assert done.returncode == 1
    assert "another chat server" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    code = (
        "import resource\nfrom agensh.embedded.chat.server import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))\n"
        "print(raise_file_limit(), raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "3000 3000 (3000, 3000)"


def test_secrets_are_not_in_the_files(own_chat: RunningChat, world: World) -> None:
    worker = world.worker()
    assert own_chat.data is not None
    assert own_chat.stop() == 0
    content = b"".join(path.read_bytes() for path in own_chat.data.iterdir())
    assert worker.id.encode() in content
    assert worker.token.encode() not in content
    assert own_chat.password.encode() not in content
    assert (own_chat.data / "chat.sqlite3").stat().st_mode & 0o077 == 0
