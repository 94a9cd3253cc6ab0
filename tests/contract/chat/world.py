"""A team with a channel and workers on a running chat, made over REST with plain httpx."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from tests.support.chat_server import RunningChat


def client(url: str, token: str = "") -> httpx.Client:
    """Return a client of the REST interface that keeps no cookies."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=f"{url}/api/v4/", headers=headers, timeout=20)


def ok(response: httpx.Response) -> Any:
    """Return the JSON of an answer that must be a success."""
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.text}"
    return response.json()


@dataclass
class Worker:
    """A bot with its token."""

    id: str
    name: str
    token: str
    token_id: str
    rest: httpx.Client

    def post(self, channel_id: str, message: str, **fields: Any) -> dict[str, Any]:
        """Write a post."""
        post: dict[str, Any] = ok(self.rest.post("posts", json={"channel_id": channel_id, "message": message} | fields))
        return post


@dataclass
class World:
    """One team on a chat, under names nobody else uses; a context, for it holds connections."""

    chat: RunningChat
    admin: httpx.Client
    admin_id: str
    tag: str
    team: dict[str, Any]
    channel: dict[str, Any]
    clients: list[httpx.Client] = field(default_factory=list)

    def account(self) -> Worker:
        """Return a new bot that is in no team."""
        name = f"{self.tag}-worker{len(self.clients) + 1}"
        bot = ok(self.admin.post("bots", json={"username": name, "display_name": name}))
        token = ok(self.admin.post(f"users/{bot['user_id']}/tokens", json={"description": "test"}))
        rest = client(self.chat.url, token["token"])
        self.clients.append(rest)
        return Worker(bot["user_id"], name, token["token"], token["id"], rest)

    def worker(self) -> Worker:
        """Return a new bot that is in the team and its channel."""
        worker = self.account()
        ok(self.admin.post(f"teams/{self.team['id']}/members", json={"team_id": self.team["id"], "user_id": worker.id}))
        ok(self.admin.post(f"channels/{self.channel['id']}/members", json={"user_id": worker.id}))
        return worker

    def new_channel(self, *workers: Worker, kind: str = "O") -> str:
        """Return the id of a new channel with these members."""
        name = f"c-{secrets.token_hex(4)}"
        fields = {"team_id": self.team["id"], "name": name, "display_name": name, "type": kind}
        channel = ok(self.admin.post("channels", json=fields))
        if workers:
            ok(
                self.admin.post(
                    f"channels/{channel['id']}/members", json={"user_ids": [worker.id for worker in workers]}
                )
            )
        return str(channel["id"])

    async def until_offline(self, user_id: str) -> None:
        """Wait until the server knows that the user's connection is dead."""
        for _ in range(500):
            if ok(self.admin.get(f"users/{user_id}/status"))["status"] != "online":
                return
            await asyncio.sleep(0.02)
        raise TimeoutError(f"the server still believes {user_id} to be connected")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the clients."""
        for rest in [*self.clients, self.admin]:
            rest.close()


def make_world(chat: RunningChat) -> World:
    """Log in as the admin and make a team with a channel."""
    with client(chat.url) as anybody:
        login = anybody.post("users/login", json={"login_id": chat.admin, "password": chat.password})
    me = ok(login)
    admin = client(chat.url, login.headers["Token"])
    tag = f"t{secrets.token_hex(3)}"
    try:
        team = ok(admin.post("teams", json={"name": tag, "display_name": tag, "type": "O"}))
        fields = {"team_id": team["id"], "name": "task", "display_name": "Task", "type": "O"}
        channel = ok(admin.post("channels", json=fields))
    except BaseException:
        admin.close()
        raise
    return World(chat, admin, me["id"], tag, team, channel)
