"""The chat through `mattermostautodriver`, which is generated from Mattermost's API description."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mattermostautodriver import AsyncTypedDriver, TypedDriver
from mattermostautodriver.exceptions import (
    FeatureDisabled,
    InvalidOrMissingParameters,
    NoAccessTokenProvided,
    NotEnoughPermissions,
    ResourceNotFound,
)

from tests.contract.chat.world import World


def _options(world: World, **more: Any) -> dict[str, Any]:
    return {"scheme": "http", "url": "127.0.0.1", "port": world.chat.port} | more


@contextmanager
def _admin(world: World) -> Iterator[TypedDriver]:
    with TypedDriver(_options(world, login_id=world.chat.admin, password=world.chat.password)) as driver:
        driver.login()
        yield driver


def test_an_administrator_provisions_a_team(world: World) -> None:
    with _admin(world) as driver:
        name = f"{world.tag}x"
        team = driver.teams.create_team(name=name, display_name=name, type="O")
        channel = driver.channels.create_channel(
            team_id=team["id"], name="task", display_name="Task", type="O", purpose="work"
        )
        bots = [driver.bots.create_bot(f"{name}-worker{number}", display_name="w") for number in (1, 2)]
        ids = [bot["user_id"] for bot in bots]
        members = [{"team_id": team["id"], "user_id": user_id} for user_id in ids]
        assert len(driver.teams.add_team_members(team["id"], members)) == 2
        added = driver.channels.add_channel_member(channel["id"], user_ids=ids)
        assert {member["user_id"] for member in added} == set(ids)
        token = driver.users.create_user_access_token(ids[0], "router")
        assert len(token["token"]) == 26
        assert driver.channels.get_channel_stats(channel["id"])["member_count"] == 3
        assert [bot["username"] for bot in driver.users.get_users_by_ids(ids)] == [bot["username"] for bot in bots]
        assert driver.system.get_client_config()["Version"].startswith("11.")
        assert driver.channels.get_channel_by_name(team["id"], "task")["purpose"] == "work"
        assert driver.teams.get_team_by_name(name)["id"] == team["id"]
        driver.users.revoke_user_access_token(token["id"])
        driver.logout()


def test_a_worker_reads_and_writes(world: World) -> None:
    worker, other = world.worker(), world.worker()
    channel = world.channel["id"]
    with TypedDriver(_options(world, token=worker.token)) as driver:
        assert driver.login()["id"] == worker.id
        root = driver.posts.create_post(channel, "root", props={"a": 1})
        reply = driver.posts.create_post(channel, "reply", root_id=root["id"])
        assert driver.posts.get_post_thread(root["id"])["posts"][reply["id"]]["root_id"] == root["id"]
        assert driver.posts.get_posts_for_channel(channel, per_page=1)["order"] == [reply["id"]]
        assert driver.posts.get_posts_for_channel(channel, before=root["id"])["order"] != []
        assert driver.posts.patch_post(root["id"], message="edited")["message"] == "edited"
        direct = driver.channels.create_direct_channel([worker.id, other.id])
        assert direct["type"] == "D"
        driver.posts.create_post(direct["id"], "hello")
        mine = {row["id"] for row in driver.channels.get_channels_for_user(worker.id)}
        assert {channel, direct["id"]} <= mine
        assert driver.channels.view_channel("me", channel)["status"] == "OK"
        assert driver.posts.delete_post(reply["id"])["status"] == "OK"
        assert [post["id"] for post in driver.posts.get_posts_by_ids([root["id"], reply["id"]])] == [root["id"]]


def test_refusals_come_as_the_drivers_exceptions(world: World) -> None:
    worker, outsider = world.worker(), world.account()
    with TypedDriver(_options(world, token=outsider.token)) as driver:
        driver.login()
        with pytest.raises(NotEnoughPermissions):
            driver.posts.create_post(world.channel["id"], "let me in")
        with pytest.raises(ResourceNotFound):
            driver.posts.get_post("z" * 26)
        with pytest.raises(InvalidOrMissingParameters):
            driver.channels.create_direct_channel([outsider.id])
    with _admin(world) as driver, pytest.raises(FeatureDisabled):
        driver.users.create_user_access_token(world.admin_id, "mine")
    with TypedDriver(_options(world, token="z" * 26)) as driver, pytest.raises(NoAccessTokenProvided):
        driver.login()
    assert worker.id


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the driver's call of aiohttp
async def test_its_websocket_authenticates_by_challenge_and_hears_posts(world: World) -> None:
    worker, other = world.worker(), world.worker()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1000)

    async def on_message(message: str) -> None:
        heard.put_nowait(json.loads(message))

    async with AsyncTypedDriver(_options(world, token=worker.token)) as driver:
        await driver.login()
        listening = asyncio.ensure_future(driver.init_websocket(on_message))
        try:
            async with asyncio.timeout(15):
                hello = await heard.get()
                assert hello["event"] == "hello"
                assert (await heard.get())["status"] == "OK"
                post = other.post(world.channel["id"], "to the driver")
                posted = await heard.get()
            assert posted["event"] == "posted"
            assert json.loads(posted["data"]["post"])["id"] == post["id"]
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
