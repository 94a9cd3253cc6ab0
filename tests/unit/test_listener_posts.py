"""The posts of the task channel on their way from the listeners of a host into its feed; a chat in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from agensh.clients.mattermost import Channel, Post
from agensh.clients.mattermost_models import ChatUser
from agensh.clients.mattermost_ws import ChatSignal
from agensh.urls import sqlite_url
from router.listeners.mattermost import MattermostListener
from router.posts import PostFeed
from router.queue import EventQueue, RetryPolicy
from router.tables import posts, runs
from router.writer import Writer
from tests.support.clock import ManualClock
from tests.support.router_database import open_writer

CHANNEL = "c1"
NAMES = {"u9": "demo-worker9"}


class Chat:
    """A chat with one channel; it is asked by every listener and pushes nothing by itself."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self.said: list[Post] = []
        self.asked: list[str] = []

    async def say(self, text: str, *, after: float = 0.0) -> ChatSignal:
        """Post, `after` seconds from now, and return what is pushed of it."""
        await self._clock.advance(after)
        post = Post(f"p{next(self._numbers)}", CHANNEL, "u9", text, "", int(self._clock.time() * 1000), "", "")
        self.said.append(post)
        return ChatSignal("posted", post=post, channel_id=CHANNEL, channel_type="O", channel_name="task")

    def server_time(self) -> float:
        return self._clock.time()

    async def me(self) -> ChatUser:
        return ChatUser("u1", "demo-worker1", is_bot=True)

    async def my_channels(self) -> list[Channel]:
        newest = self.said[-1].create_at if self.said else 0
        return [Channel(CHANNEL, "", "O", "task", "", newest, len(self.said))]

    async def posts(self, channel_id: str, *, limit: int) -> list[Post]:
        return self.said[-limit:]

    async def all_posts(self, channel_id: str) -> list[Post]:
        self.asked.append("all")
        return list(self.said)

    async def posts_after(self, channel_id: str, post_id: str) -> list[Post]:
        self.asked.append(post_id)
        numbers = [post.id for post in self.said]
        return self.said[numbers.index(post_id) + 1 :] if post_id in numbers else []


class Host:
    """A node host with two listeners, as it is after its start."""

    def __init__(self, writer: Writer, clock: ManualClock, chat: Chat) -> None:
        self.writer = writer
        self.feed = PostFeed(writer, clock, CHANNEL)
        self.listeners = [
            MattermostListener(
                name,
                chat,  # type: ignore[arg-type]
                None,  # type: ignore[arg-type]
                EventQueue(name, writer, clock, RetryPolicy(), posts=self.feed),
                clock,
                names=NAMES,
                posts=self.feed,
            )
            for name in ("demo-worker1", "demo-worker2")
        ]

    async def begin(self) -> None:
        await self.feed.load()
        for listener in self.listeners:
            await listener.work(sweep=True)

    async def kept(self) -> list[str]:
        """Return the posts that the run has."""
        query = select(posts.c.message).order_by(posts.c.seq)
        return list((await self.writer.read(lambda connection: connection.scalars(query))).all())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def writer(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Writer]:
    async with open_writer(sqlite_url(tmp_path / "runtime.sqlite3"), clock) as writer:
        row = insert(runs).values(run_id="r", t0=0.0, state="running")
        await writer.submit(lambda connection: connection.execute(row))
        yield writer


async def test_a_post_whose_first_hearer_is_held_up_is_not_lost_when_the_host_is_killed(
    writer: Writer, clock: ManualClock
) -> None:
    chat = Chat(clock)
    host = Host(writer, clock, chat)
    await host.begin()
    held_up, other = host.listeners
    early = await chat.say("early")
    assert held_up.on_signal(early)
    assert not other.on_signal(early)
    late = await chat.say("late", after=60)
    assert other.on_signal(late)
    assert not held_up.on_signal(late)
    await other.work(sweep=False)
    await clock.advance(60)
    again = Host(writer, clock, chat)
    await again.begin()
    assert await again.kept() == ["early", "late"]


async def test_what_a_listener_hears_does_not_overtake_what_it_missed(writer: Writer, clock: ManualClock) -> None:
    chat = Chat(clock)
    host = Host(writer, clock, chat)
    await host.begin()
    behind, other = host.listeners
    behind.on_signal(ChatSignal("fresh"))
    await chat.say("nobody heard it")
    late = await chat.say("late", after=60)
    assert behind.on_signal(late)
    await other.work(sweep=False)
    assert await host.kept() == []
    await clock.advance(60)
    await behind.work(sweep=False)
    assert await host.kept() == ["nobody heard it", "late"]


async def test_a_backlog_of_posts_that_is_too_long_is_read_back(
    writer: Writer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.listeners.mattermost.INBOX", 2)
    chat = Chat(clock)
    host = Host(writer, clock, chat)
    await host.begin()
    listener, _ = host.listeners
    said = [f"number {number}" for number in range(4)]
    for text in said:
        listener.on_signal(await chat.say(text))
    assert host.feed.backlog == 0
    await listener.work(sweep=False)
    assert await host.kept() == said


async def test_a_quiet_channel_is_not_read_again_by_the_next_host(writer: Writer, clock: ManualClock) -> None:
    chat = Chat(clock)
    chat_client: Any = chat
    for number in range(3):
        await chat.say(f"number {number}")
    await clock.advance(3600)  # all of it is settled: the anchor is the newest post

    async def sweep() -> list[str]:
        chat.asked.clear()
        queue = EventQueue("demo-worker1", writer, clock, RetryPolicy())
        socket: Any = None
        await MattermostListener("demo-worker1", chat_client, socket, queue, clock, names=NAMES).work(sweep=True)
        return list(chat.asked)

    assert await sweep() == ["all"]
    assert await sweep() == ["p3"]
    chat.said.pop()  # removed for good; what was said before and after it is still there
    await chat.say("after the anchor", after=60)
    assert await sweep() == ["p3", "all"]
    claim = await EventQueue("demo-worker1", writer, clock, RetryPolicy()).claim("s")
    assert claim is not None
    assert len(claim.events) == 4
