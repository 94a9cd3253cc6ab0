"""The event stream by itself: pings, the channel of one, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.embedded.forge.settings import ForgeSettings
from agensh.embedded.forge.state import Forge


@pytest.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    forge = Forge(tmp_path, SystemClock(), ForgeSettings(event_source_update_time=0.01, ping_interval=0.05))
    forge.db.open()

    def people(tx):
        for number in (1, 2):
            name = f"user{number}"
            tx.insert("users", name=name, lower_name=name, email=f"{name}@x", password="", created=1)
        tx.insert("repos", owner_id=1, name="r", lower_name="r", default_branch="main", created=1, updated=1)
        for number in range(1, 6):
            tx.insert("issues", repo_id=1, number=number, poster_id=1, title="t", created=1, updated=1)

    await forge.db.write(people)
    loop = asyncio.create_task(forge.events.run())
    yield forge
    loop.cancel()
    await asyncio.wait([loop])
    forge.db.close()


async def notify(forge: Forge, user_id: int, issue_id: int) -> None:
    def write(tx):
        tx.insert(
            "notifications", user_id=user_id, repo_id=1, issue_id=issue_id, status="unread", updated_by=1, created=1,
            updated=1,
        )  # fmt: skip
        tx.touched.add(user_id)

    await forge.db.write(write)


async def test_ping_without_data_and_counts_for_the_own_user_only(forge: Forge) -> None:
    one, two = forge.events.stream(1), forge.events.stream(2)
    assert await anext(one) == b"\n"
    assert await anext(two) == b"\n"
    assert await anext(one) == b"event: ping\n\n"
    await notify(forge, 1, 1)
    assert await anext(one) == b'event: notification-count\ndata: {"UserID":1,"Count":1}\n\n'
    assert await anext(two) == b"event: ping\n\n"


async def test_what_a_slow_reader_does_not_fetch_is_lost(forge: Forge) -> None:
    """Five changes, tick by tick, nobody reading: the first count waits, the later ones are dropped."""
    stream = forge.events.stream(1)
    assert await anext(stream) == b"\n"
    fast = forge.events.stream(1)
    assert await anext(fast) == b"\n"
    for issue in range(1, 6):
        await notify(forge, 1, issue)
        while (message := await anext(fast)) == b"event: ping\n\n":
            pass
        assert f'"Count":{issue}'.encode() in message
    assert b'"Count":1' in await anext(stream)
    assert await anext(stream) == b"event: ping\n\n"


async def test_the_end_reaches_full_and_empty_channels(forge: Forge) -> None:
    full, empty = forge.events.stream(1), forge.events.stream(2)
    await anext(full)
    await anext(empty)
    other = forge.events.stream(1)
    await anext(other)
    await notify(forge, 1, 1)
    assert b"Count" in await anext(other)
    forge.events.close()
    for stream in (full, empty, other):
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    late = forge.events.stream(1)
    assert await anext(late) == b"\n"
    with pytest.raises(StopAsyncIteration):
        await anext(late)
