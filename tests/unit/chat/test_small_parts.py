"""Keys of pending posts, the rate limit, identifiers, mentions, storing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from agensh.embedded.chat import pending
from agensh.embedded.chat.app import create_app
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.errors import ChatError
from agensh.embedded.chat.hub import Hub
from agensh.embedded.chat.ids import is_id, new_id
from agensh.embedded.chat.middleware import RateLimit
from agensh.embedded.chat.model import Channel, ChannelMember, Post, User
from agensh.embedded.chat.pending import PendingPosts
from agensh.embedded.chat.posting import mentioned
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.chat.store import Store, change, put, remove, replace, select
from agensh.errors import UsageError
from tests.support.clock import ManualClock


async def test_a_key_is_pending_then_known_then_forgotten_after_30_seconds() -> None:
    clock = ManualClock()
    keys = PendingPosts(clock)
    assert keys.reserve("k") is None
    with pytest.raises(ChatError) as refused:
        keys.reserve("k")
    assert (refused.value.status, refused.value.id) == (500, "api.post.deduplicate_create_post.pending")
    keys.made("k", "post")
    await clock.advance(29.9)
    assert keys.reserve("k") == "post"
    await clock.advance(0.2)
    assert keys.reserve("k") is None


def test_a_released_key_is_free_and_the_oldest_of_too_many_goes() -> None:
    keys = PendingPosts(ManualClock())
    keys.reserve("k")
    keys.release("k")
    assert keys.reserve("k") is None
    keys.made("k", "post")
    for number in range(pending.CAPACITY):
        keys.made(str(number), "post")
    assert keys.reserve("k") is None
    assert keys.reserve("1") == "post"


async def test_the_bucket_refuses_a_burst_and_drains_with_time() -> None:
    clock = ManualClock()
    settings = ChatSettings(rate_limit=True, rate_limit_per_second=10, rate_limit_burst=5)
    app = RateLimit(PlainTextResponse("fine"), settings=settings, clock=clock)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        answers = [await client.get("/") for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 6 + [429] * 2
        assert [answer.headers["X-RateLimit-Remaining"] for answer in answers[:3]] == ["5", "4", "3"]
        assert answers[-1].headers["X-RateLimit-Reset"] == "1"
        await clock.advance(0.25)
        assert [(await client.get("/")).status_code for _ in range(3)] == [200, 200, 429]


def test_identifiers_have_the_real_form() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_id(identifier) for identifier in ids)
    assert not any(is_id(text) for text in ("", "a" * 25, "a" * 27, "a" * 25 + "é", "a" * 25 + "-"))


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    directory = Directory()
    clock = ManualClock()
    for name in ("ann", "bob", "bob.x", "c-worker1", "c-worker10", "out"):
        directory.add_user(User(name, 0, 0, name, f"{name}@x", "system_user"))
    directory.add_channel(Channel("c", 0, 0, "t", "O", "c", "C", "ann"))
    for name in ("ann", "bob", "bob.x", "c-worker1", "c-worker10"):
        directory.add_channel_member(ChannelMember("c", name, 0))
    store = Store(tmp_path / "chat.sqlite3")
    store.close()
    return Chat(store, directory, Hub(directory, clock), clock, ChatSettings(max_notifications_per_channel=6))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("hi @bob", {"bob"}),
        ("@bob, @bob.x. and (@c-worker1)!", {"bob", "bob.x", "c-worker1"}),
        ("@c-worker10 not the other", {"c-worker10"}),
        ("@BOB", {"bob"}),
        ("bob", set()),
        ("mail bob@bob.example", set()),
        ("@bobby @out @nobody", set()),
        ("me: @ann", set()),
        ("@all", {"bob", "bob.x", "c-worker1", "c-worker10"}),
        ("@channel, look", {"bob", "bob.x", "c-worker1", "c-worker10"}),
    ],
)
def test_mentions_are_members_named_whole(chat: Chat, message: str, expected: set[str]) -> None:
    channel, author = chat.directory.channels["c"], chat.directory.users["ann"]
    assert set(mentioned(chat, channel, author, message)) == expected


def test_everybody_is_not_mentioned_in_a_large_channel(chat: Chat) -> None:
    chat.directory.add_channel_member(ChannelMember("c", "out", 0))
    channel, author = chat.directory.channels["c"], chat.directory.users["ann"]
    assert mentioned(chat, channel, author, "@all @here") == []
    assert mentioned(chat, channel, author, "@all @bob") == ["bob"]


async def test_a_failed_write_undoes_itself_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.sqlite3")
    try:
        post = Post("p", 1, 1, "u", "c", "text", props={"a": [1, "é"]})

        def fails(connection: sqlite3.Connection) -> None:
            put(connection, Post("q", 1, 1, "u", "c", "lost"))
            put(connection, post)

        results = await asyncio.gather(
            store.write(lambda connection: put(connection, post)),
            store.write(fails),
            store.write(lambda connection: put(connection, Post("r", 1, 1, "u", "c", "kept"))),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), sqlite3.IntegrityError, type(None)]
        stored = await store.read(lambda connection: select(connection, Post, "ORDER BY id"))
        assert [row.id for row in stored] == ["p", "r"]
        assert stored[0] == post
        await store.write(lambda connection: change(connection, post, message="new", is_pinned=True, props={}))
        await store.write(lambda connection: replace(connection, Post("r", 1, 2, "u", "c", "changed")))
        stored = await store.read(lambda connection: select(connection, Post, "ORDER BY id"))
        assert [(row.message, row.is_pinned, row.update_at) for row in stored] == [
            ("new", True, 1),
            ("changed", False, 2),
        ]
        await store.write(lambda connection: remove(connection, post))
        assert [row.id for row in await store.read(lambda connection: select(connection, Post))] == ["r"]
    finally:
        store.close()


def test_a_folder_with_something_else_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "chat.sqlite3").write_text("no database, but long enough to look at " * 10)
    with pytest.raises(UsageError, match="is not a database of the chat"):
        create_app(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with contextlib.closing(sqlite3.connect(other / "chat.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="has version 99"):
        create_app(other)
