"""Forge and chat are killed while workers write, and started again: what was acknowledged is there, all of it once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from adapters.base import Outcome, TurnEnd, TurnItem
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from router.backends import ServiceBackends
from router.node import NodeHost
from tests.contract.chat.world import make_world
from tests.contract.forge.world import World
from tests.integration.test_router_node import running
from tests.integration.test_router_services import new_run
from tests.support.chaos import Line, either, named_once, records_of
from tests.support.chat_server import running_chat
from tests.support.router_stage import NoRuntime, Stage, StageAdapter
from tests.support.servers import ForgeProcess
from tests.support.services import Services, running_services

WRITERS, EACH = 4, either(12, 60)


async def progress(done: dict[str, str], count: int) -> None:
    async with asyncio.timeout(60):
        while len(done) < count:  # noqa: ASYNC110 (progress is waited for, not an event)
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("killed_after", either([7], [1, 7, 20]))
async def test_comments_outlive_the_forge(tmp_path: Path, killed_after: int) -> None:
    with (
        ForgeProcess(tmp_path / "forge") as process,
        await asyncio.to_thread(lambda: World(process.start(), tmp_path, "kill")) as world,
    ):
        number = world.ann.http.post(f"{world.at}/issues", json={"title": "Parser"}).json()["number"]
        place = (world.owner.name, world.name, number)
        done: dict[str, str] = {}

        async def write(client: GiteaClient, texts: list[str]) -> None:
            for text in texts:
                while text not in done:
                    try:
                        # As the tool does: whoever is not sure looks first.
                        found = [c.id for c in await client.comments(*place) if c.body == text]
                        done[text] = str(found[0] if found else (await client.create_comment(*place, text)).id)
                    except ServiceError as error:
                        if error.status and error.status < 500:
                            raise

        async with GiteaClient(process.forge.url, token=world.ann.token) as client, asyncio.timeout(100):
            async with asyncio.TaskGroup() as group:
                for writer in range(WRITERS):
                    group.create_task(write(client, [f"{writer}-{index}" for index in range(EACH)]))
                await progress(done, killed_after)
                await asyncio.to_thread(process.kill)
                assert len(done) < WRITERS * EACH
                await asyncio.to_thread(process.start)
            stored = await client.comments(*place)
        assert {comment.body: str(comment.id) for comment in stored} == done
        assert len(stored) == len(done) == WRITERS * EACH


@pytest.mark.parametrize("killed_after", either([20], [1, 20, 60]))
async def test_posts_outlive_the_chat_and_are_sent_once(tmp_path: Path, killed_after: int) -> None:
    """The chat forgets its keys when it is killed; the client reads back before it sends again."""
    with running_chat(tmp_path) as chat:
        with await asyncio.to_thread(make_world, chat) as world:
            workers = [world.worker() for _ in range(WRITERS)]
            channel = world.channel["id"]
        done: dict[str, str] = {}

        async def write(token: str, texts: list[str]) -> None:
            async with MattermostClient(chat.url, token=token) as client:
                for text in texts:
                    done[text] = (await client.post(channel, text)).id

        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for writer, worker in enumerate(workers):
                group.create_task(write(worker.token, [f"{writer}-{index}" for index in range(EACH * 2)]))
            await progress(done, killed_after)
            await asyncio.to_thread(chat.kill)
            assert len(done) < WRITERS * EACH * 2
            await asyncio.to_thread(chat.start)
        async with MattermostClient(chat.url, token=workers[0].token) as client:
            stored = [post for post in await client.all_posts(channel) if not post.type]
        assert Counter(post.message for post in stored) == Counter(dict.fromkeys(done, 1))
        assert {post.message: post.id for post in stored} == done


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with running_services(tmp_path / "services") as running:
        yield running


REFUSED = {"chat": "ConnectionRefusedError", "forge": "ConnectError at the opening"}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_node_host_names_the_kill_and_its_end(
    services: Services, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each worker one line for each reason, one when it hears again; meanwhile the status says who does not hear."""

    async def turn(_adapter: StageAdapter, _prompt: str) -> AsyncIterator[TurnItem]:
        yield TurnEnd(Outcome.COMPLETED)

    process = services.chat if kind == "chat" else services.forge
    run = await new_run(services, tmp_path / "run", f"kill-{kind}")
    info, stage, clock = run.info(), Stage(turn), SystemClock()
    secrets = run.secrets().model_copy(update={"node_admin": "node-admin"})
    host = NodeHost(
        run, info, secrets, adapter_factory=stage.adapter, runtime=NoRuntime(), clock=clock,
        workers=info.spec.worker_names, backends=ServiceBackends(info, secrets, clock), grace=2.0,
    )  # fmt: skip

    async def hearing(every: bool) -> None:
        headers = {"Authorization": f"Bearer {secrets.node_admin}"}
        async with httpx.AsyncClient(headers=headers, timeout=30) as client, asyncio.timeout(90):
            while True:
                workers = []
                with suppress(httpx.ConnectError):  # it has just been started
                    workers = (await client.get(f"{info.urls.node}/status")).json()["workers"]
                if [worker["live"] for worker in workers] == [every] * len(info.spec.worker_names):
                    return
                await asyncio.sleep(0.05)

    def of(worker: str) -> list[Line]:
        lines = records_of(caplog.records)
        return [line for line in lines if (line.fields.get("source"), line.fields.get("worker")) == (kind, worker)]

    async with running(host):
        await hearing(True)
        caplog.set_level(logging.INFO, "router.listeners.base")
        caplog.clear()
        await asyncio.to_thread(process.kill)
        for worker in info.spec.worker_names:
            await stage.until(lambda worker=worker: any(REFUSED[kind] in str(line) for line in of(worker)), 60)  # type: ignore[misc]
        await hearing(False)
        await asyncio.to_thread(process.start)
        await hearing(True)
    for worker in info.spec.worker_names:
        told = of(worker)
        opened = named_once(told, "push is open again")
        cuts = [str(line.fields["error"]) for line in told[: told.index(opened)] if line.message == "push cut"]
        assert any(REFUSED[kind] in cut for cut in cuts)
        assert len(cuts) == len(set(cuts)) <= 3, "one line a reason, however often it was met"
