"""The wall clock is set an hour forth or back, under a living process, at a restart, or between two machines.

Nothing of a run may come early, late or never because of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from adapters.base import Outcome, Text, TurnEnd, TurnItem
from agensh.clients.gitea import GiteaClient
from agensh.clients.gitea_events import GiteaEventStream
from agensh.clients.mattermost import MattermostClient
from agensh.clock import SystemClock
from agensh.embedded.chat.app import create_app as create_chat
from agensh.embedded.chat.server import uvicorn_options
from agensh.entries import EntryType
from agensh.serving import make_server, open_socket
from board_service.settings import BoardSettings
from router.feed import BoardFeed
from router.listeners.gitea import GiteaListener
from router.node import NodeHost
from tests.contract.chat.world import make_world
from tests.contract.forge.world import PASSWORD as FORGE_PASSWORD
from tests.contract.forge.world import World
from tests.support.board_server import serving_board
from tests.support.chaos_node import message
from tests.support.chat_server import ADMIN, PASSWORD, RunningChat
from tests.support.queues import listening, running_queue, until
from tests.support.router_stage import MemoryBoard, NoRuntime, Stage, StageAdapter, StageBackends, new_run
from tests.support.servers import running_forge, wait_for
from tests.support.walls import HOUR, Wall

STEPS = [HOUR, -HOUR]
both_ways = pytest.mark.parametrize("step", STEPS, ids=["forth", "back"])


class SetClock(SystemClock):
    """The time on the wall itself, as servers have it that are not ours."""

    def __init__(self, wall: Wall) -> None:
        super().__init__(wall)
        self._wall = wall

    def time(self) -> float:
        return self._wall()


@contextmanager
def chat_at(data: Path, wall: Wall) -> Iterator[RunningChat]:
    """Run a chat that reads the time from `wall` when it starts."""
    sock = open_socket("127.0.0.1", 0, "chat")
    app = create_chat(data, clock=wall.clock(), admin=(ADMIN, PASSWORD))
    server = make_server(app, **uvicorn_options())
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]), name="chat")
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        wait_for(f"{url}/api/v4/system/ping", thread)
        yield RunningChat(url, ADMIN, PASSWORD)
    finally:
        server.stop()
        thread.join(20)
        sock.close()


@both_ways
async def test_a_claim_expires_after_its_time(tmp_path: Path, step: float) -> None:
    wall, lasts = Wall(), 3.0
    settings = BoardSettings(data=str(tmp_path), admin_token=SecretStr("admin"), claim_seconds=lasts)
    async with serving_board(settings, clock=wall.clock()) as (board, _):
        client, other = [await asyncio.to_thread(board.client, name) for name in ("w1", "w2")]
        async with client, other:
            began = asyncio.get_running_loop().time()
            await client.write(EntryType.CLAIM, "sort")
            wall.step(step)
            (shown,) = await other.read()
            if asyncio.get_running_loop().time() - began < lasts:
                assert shown.active
            while await other.read():  # noqa: ASYNC110 (its expiry tells nobody)
                await asyncio.sleep(0.05)
            assert asyncio.get_running_loop().time() - began >= lasts
            # And what is written after the step is younger than what was before it.
            await client.write(EntryType.FACT, "later")
            (later,) = await other.read()
            assert later.created_at > shown.created_at


@both_ways
async def test_a_claim_is_shown_by_a_node_host_whose_clock_is_another(step: float) -> None:
    """Two machines an hour apart: what stands on the board stands at the desks, and it ends."""
    wall = Wall(step)
    theirs = MemoryBoard(wall.clock())
    feed = BoardFeed(theirs, SystemClock())
    task = asyncio.create_task(feed.run())
    try:
        now = wall.clock().time()
        theirs.write("demo-worker2", EntryType.CLAIM, "sort", expires_at=now + 600)
        theirs.write("demo-worker2", EntryType.CLAIM, "long ago", expires_at=now - 1, active=False)
        await until(lambda: feed.head == 2, "the claims are heard")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    claim, old = feed.after(0)
    assert claim.expires_at is not None
    assert 590 < claim.expires_at - SystemClock().time() <= 601
    assert not old.active


@both_ways
async def test_a_run_keeps_its_times(tmp_path: Path, step: float, caplog: pytest.LogCaptureFixture) -> None:
    """Start of the second worker, wait after a failure, idle prompt, both reminders and the end."""
    caplog.set_level(logging.INFO)
    wall = Wall()
    run = new_run(tmp_path / "r1", workers=2, stagger="1s", budget="9s", wind_down="4s", last_call="2s", idle="2s")
    stage, failed = Stage(), asyncio.Event()
    me, peer = run.info().spec.worker_names

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("working")
        if adapter.launch.worker == me and not failed.is_set():
            failed.set()
            yield TurnEnd(Outcome.REFUSED, "no")
            return
        yield TurnEnd(Outcome.COMPLETED)

    stage.turn = turn
    clock = wall.clock()
    host = NodeHost(
        run, run.info(), run.secrets(), adapter_factory=stage.adapter, runtime=NoRuntime(), clock=clock,
        workers=[me, peer], backends=StageBackends(MemoryBoard(clock)), grace=0.5,
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    began = loop.time()
    task = asyncio.create_task(host.run())
    await asyncio.wait_for(failed.wait(), 30)
    assert peer not in stage.prompts
    wall.step(step)
    await asyncio.wait_for(task, 60)
    assert loop.time() - began >= 9.0
    prompts = {name: "\n".join(stage.prompts[name]) for name in (me, peer)}
    assert len(stage.prompts[me]) >= 2, "what failed was tried again"
    for name in (me, peer):
        assert prompts[name].count("kind=wind_down") == 1
        assert prompts[name].count("kind=last_call") == 1
    assert "kind=idle" in prompts[peer]
    assert "worker is parked" not in caplog.text


async def test_what_waits_is_not_held_up_by_a_restart_in_the_past(tmp_path: Path) -> None:
    """The former host's clock was an hour ahead, and so is the time of the next try that it stored."""
    async with running_queue(tmp_path, "demo-worker1", clock=Wall(HOUR).clock()) as rows:
        await rows.queue.put([message(1)])
        claim = await rows.queue.claim("s")
        assert claim is not None
        await rows.queue.fail([event.id for event in claim.events], "no")
    now = SystemClock().time()
    async with running_queue(tmp_path, "demo-worker1") as rows:
        assert (await rows.all())[0].available_at > now + HOUR / 2
        await rows.queue.recover()
        assert (await rows.all())[0].available_at <= now + rows.queue.policy.longest + 60


@both_ways
async def test_comments_are_told_when_the_clock_of_the_forge_was_set(tmp_path: Path, step: float) -> None:
    """As on a real forge, whose times are those of its wall: what is new may be older than what was read."""
    wall = Wall()
    with (
        running_forge(tmp_path / "forge", clock=SetClock(wall)) as forge,
        await asyncio.to_thread(World, forge, tmp_path, "clock") as world,
    ):
        issue = world.ben.http.post(f"{world.at}/issues", json={"title": "Parser"}).json()["number"]
        say = f"{world.at}/issues/{issue}/comments"
        stream = GiteaEventStream(forge.url, world.ben.name, FORGE_PASSWORD)
        async with (
            GiteaClient(forge.url, token=world.ben.token) as client,
            running_queue(tmp_path, world.ben.name) as rows,
        ):
            pace = {"sweep_every": 600.0, "reconnect_first": 0.05, "reconnect_longest": 0.2}
            listener = GiteaListener(world.ben.name, client, stream, rows.queue, SystemClock(), **pace)
            async with listening(listener):
                for number in range(1, 4):
                    await asyncio.to_thread(world.ann.http.post, say, json={"body": f"comment {number}"})
                    # One event each, long before the next sweep.
                    await rows.until(number, "comment")
                    if number == 1:
                        wall.step(step)
            assert len(await rows.until(3, "comment")) == 3
        await stream.aclose()


async def test_posts_after_a_restart_in_the_past_follow_those_before_it(tmp_path: Path) -> None:
    with chat_at(tmp_path / "chat", Wall()) as chat, await asyncio.to_thread(make_world, chat) as world:
        worker = world.worker()
        before = worker.post(world.channel["id"], "before")
        token, channel = worker.token, world.channel["id"]
    with chat_at(tmp_path / "chat", Wall(-HOUR)) as chat:
        async with MattermostClient(chat.url, token=token) as client:
            posts = [await client.post(channel, f"after {number}") for number in range(3)]
            found = await client.posts_after(channel, before["id"])
            assert [post.message for post in found] == [f"after {number}" for number in range(3)]
            assert posts[0].create_at > before["create_at"]


@both_ways
async def test_the_time_of_the_chat_is_asked_of_the_chat(tmp_path: Path, step: float) -> None:
    """Which posts may still become visible is a matter of its clock, not of that of the node host."""
    wall = Wall(step)
    with chat_at(tmp_path / "chat", wall) as chat:
        async with MattermostClient(chat.url) as client:
            assert client.server_time() == 0.0
            await client.request("GET", "/system/ping")
            assert abs(client.server_time() - wall()) < 10
