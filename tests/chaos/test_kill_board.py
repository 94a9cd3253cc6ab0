"""The board service is killed under those who write and a node host that follows, and started again on its port."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from agensh.clients.board import BoardClient
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from agensh.launch.ports import free_port
from router.feed import BoardFeed
from tests.support.board_process import Served, make_token, served
from tests.support.chaos import either, named_once, records_of
from tests.support.queues import until

WRITERS, EACH = 4, either(30, 100)


@pytest.mark.parametrize("killed_after", either([30], [1, 30, 90]))
async def test_a_node_host_follows_a_board_that_was_killed(
    tmp_path: Path, killed_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "router.feed")
    where, port = ["--data", str(tmp_path / "board")], str(free_port())
    token, host = make_token("w1", *where), make_token("w2", *where)
    acknowledged: dict[str, int] = {}

    async def write(client: BoardClient, names: list[str]) -> None:
        for name in names:
            while name not in acknowledged:
                try:
                    acknowledged[name] = (await client.write("FACT", name, key=name)).seq
                except ServiceError as error:
                    if not error.retryable:
                        raise

    async def kill(board: Served) -> None:
        async with asyncio.timeout(60):
            while len(acknowledged) < killed_after:  # noqa: ASYNC110 (progress is waited for, not an event)
                await asyncio.sleep(0.001)
        await asyncio.to_thread(board.end, signal.SIGKILL)

    with ExitStack() as stack:
        board = stack.enter_context(served(*where, "--port", port))
        async with BoardClient(board.url, token, "main") as client, BoardClient(board.url, host, "main") as reader:
            feed = BoardFeed(reader, SystemClock())
            following = asyncio.create_task(feed.run())
            try:
                await until(lambda: feed.connected, "the host follows")
                caplog.clear()
                async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                    for writer in range(WRITERS):
                        group.create_task(write(client, [f"{writer}-{index}" for index in range(EACH)]))
                    await kill(board)
                    known = dict(acknowledged)
                    assert len(known) < WRITERS * EACH
                    await until(lambda: not feed.connected, "the kill is noticed")
                    await asyncio.to_thread(stack.enter_context, served(*where, "--port", port))
                await until(lambda: feed.head == WRITERS * EACH, "the host has caught up")
                stored = {entry.content: entry.seq for entry in await client.read()}
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
    assert known.items() <= stored.items()
    assert stored == acknowledged
    assert [entry.seq for entry in feed.after(0)] == list(range(1, WRITERS * EACH + 1))
    assert {entry.content: entry.seq for entry in feed.after(0)} == acknowledged
    lines = records_of(caplog.records)
    opened = named_once(lines, "board stream is open")
    cuts = [str(line.fields["error"]) for line in lines[: lines.index(opened)] if "board stream is cut" in line.message]
    assert cuts
    assert len(cuts) == len(set(cuts)), "one line a reason, however often it was met"
