"""Forge and chat are killed while workers write, and started again: what was acknowledged is there, all of it once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.errors import ServiceError
from tests.contract.chat.world import make_world
from tests.contract.forge.world import World
from tests.support.chaos import either, named_once, records_of
from tests.support.chat_server import running_chat
from tests.support.queues import until
from tests.support.servers import ForgeProcess
from tests.support.stations import ListenerStation, Team, provisioned_team, station

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
def team(tmp_path: Path) -> Iterator[Team]:
    with provisioned_team(tmp_path / "services") as running:
        yield running


@pytest.mark.parametrize("kind", ["chat", "forge"])
async def test_the_log_of_a_worker_names_the_kill_and_its_end(
    team: Team, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each reason that a listener meets, and one when it hears again; nothing is lost or twice."""
    process = team.services.chat if kind == "chat" else team.services.forge
    caplog.set_level(logging.INFO, "router.listeners.base")
    async with station(kind, team, tmp_path, direct=True) as place:
        assert isinstance(place, ListenerStation)
        await until(lambda: place.live, "it is heard")
        await place.speak(2)
        await place.all_heard()
        caplog.clear()
        await asyncio.to_thread(process.kill)
        # Long enough away for several attempts to connect.
        await until(lambda: place.listener.cuts > 3, "it is tried again")
        assert not place.live
        while_away = records_of(caplog.records)
        await asyncio.to_thread(process.start)
        await until(lambda: place.live, "it is heard again")
        await place.speak(2)
        await place.all_heard()
    cuts = [line for line in while_away if line.message == "push cut"]
    assert [line.message for line in while_away if line not in cuts] == []
    away = {"chat": "ConnectionRefusedError", "forge": "ConnectError at the opening"}[kind]
    named_once(while_away, away)
    assert 1 <= len(cuts) <= 2, "the connection that was cut, and that none can be opened"
    assert {(line.fields["source"], line.fields["worker"]) for line in cuts} == {(place.listener.source_name, team.me)}
    again = named_once(records_of(caplog.records), "push is open again")
    assert again.fields["failures"] >= len(cuts)
