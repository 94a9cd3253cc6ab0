"""The database is killed in the middle of writes and started again, under the board service and under a runtime."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import make_url

from agensh.clients.board import BoardClient
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from router.queue import EventQueue, RetryPolicy
from router.tables import tool_calls
from router.writer import row_inserts
from tests.support.board_process import make_token, served, write_each
from tests.support.chaos import either, lines_of, named_once, records_of
from tests.support.chaos_node import NumberedNode, message
from tests.support.mariadb import MariaDb, running_mariadb
from tests.support.router_database import open_writer
from tests.support.tcp_proxy import tcp_proxy

T = TypeVar("T")


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    """One that may be killed, unlike that of the other tests."""
    with running_mariadb() as running:
        yield running


@pytest.mark.parametrize("killed_after", either([60], [1, 60, 200]))
async def test_the_board_goes_on_where_its_database_was_killed(server: MariaDb, killed_after: int) -> None:
    writers, each = 8, 60
    where = ["--db", server.new_database()]
    token, other = make_token("w1", *where), make_token("w2", *where)
    acknowledged: dict[str, int] = {}
    heard: list[int] = []

    async def listen(client: BoardClient) -> None:
        while len(heard) < writers * each:
            try:
                async for entry in client.stream(heard[-1] if heard else 0):
                    heard.append(entry.seq)
                    if len(heard) == writers * each:
                        return
            except ServiceError:
                await asyncio.sleep(0.05)

    with served(*where, "--port", "0") as board:
        async with BoardClient(board.url, token, "main") as client, BoardClient(board.url, other, "main") as reader:
            async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                for writer in range(writers):
                    group.create_task(write_each(client, [f"{writer}-{index}" for index in range(each)], acknowledged))
                group.create_task(listen(reader))
                while len(acknowledged) < killed_after:  # noqa: ASYNC110 (progress is waited for, not an event)
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(server.kill)
                known = dict(acknowledged)
                assert len(known) < writers * each
                # What is in memory is still shown, and every entry that was acknowledged is.
                shown = {entry.content: entry.seq for entry in await reader.read()}
                assert known.items() <= shown.items()
                while "the database is away" not in "".join(board.lines):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(server.start)
            entries = await client.read()
        assert [entry.seq for entry in entries] == heard == list(range(1, writers * each + 1))
        assert {entry.content: entry.seq for entry in entries} == acknowledged
        assert board.end(signal.SIGTERM) == 0
        lines = lines_of("".join(board.lines))
        named_once(lines, "the database is away")
        named_once(lines, "the database works again")
        assert [line for line in lines if line.level in {"warning", "error"}] == [lines[1], lines[2]]


async def test_a_node_host_goes_on_where_its_runtime_database_was_killed(
    server: MariaDb, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    url = server.new_database()
    node = NumberedNode(tmp_path / "run", workers=6, count=either(60, 400), runtime_db=url)
    task = asyncio.create_task(node.host.run())
    try:
        await node.stage.until(lambda: node.shown > node.count, 60)
        await asyncio.to_thread(server.kill)
        assert not node.complete
        await node.stage.until(lambda: "the runtime database is away" in caplog.text, 60)
        await asyncio.to_thread(server.start)
        await node.stage.until(lambda: node.complete and all(r.state == "idle" for r in node.host.routers.values()), 90)
    finally:
        node.host.stop()
        await task
    rows = server.run("SELECT worker, dedupe_key, state FROM events WHERE thread <> ''", database=url.rsplit("/", 1)[1])
    assert len(rows) == node.count * 6
    assert {state for _, _, state in rows} == {"sent"}
    # The host lived on, so it knows what it delivered: nothing may come twice.
    assert {count for seen in node.seen.values() for count in seen.values()} == {1}
    lines = records_of(caplog.records)
    named_once(lines, "the runtime database is away")
    named_once(lines, "the runtime database works again")
    assert len([line for line in lines if line.level in {"warning", "error"}]) == 2


@pytest.mark.parametrize("long_away", [False, True])
async def test_a_commit_whose_answer_was_lost_is_neither_repeated_nor_forgotten(
    server: MariaDb, tmp_path: Path, long_away: bool
) -> None:
    """The moment of a kill in which the database has committed and could not say so."""
    url = make_url(server.new_database())
    assert url.port is not None
    clock = SystemClock()
    async with tcp_proxy(url.port) as proxy:
        seen = url.set(port=proxy.port).render_as_string(hide_password=False)
        async with open_writer(seen, clock) as writer:
            news: list[str] = []
            queue = EventQueue(
                "demo-worker1", writer, clock, RetryPolicy(), on_new=lambda new: news.extend(e.summary for e in new)
            )

            async def lost(work: Coroutine[Any, Any, T]) -> T:
                """Do some work whose first commit nobody hears of."""
                proxy.drop_answer_to = b"COMMIT"
                dropped, refused = proxy.dropped, proxy.refused
                task = asyncio.create_task(work)
                while proxy.dropped == dropped:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while long_away and proxy.refused < refused + 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                proxy.refuse = False
                return await task

            assert await lost(queue.put([message(number) for number in (1, 2, 3)])) == 3
            assert sorted(news) == ["number <1>", "number <2>", "number <3>"]
            claim = await lost(queue.claim("s"))
            assert claim is not None
            assert len(claim.events) == 3
            await lost(queue.fail([event.id for event in claim.events], "no"))
            assert await lost(queue.recover()) == 0
            row = {
                "worker": "demo-worker1",
                "tool": "t",
                "kind": "mcp",
                "arguments": "",
                "summary": "",
                "started_at": 0.0,
            }
            writer.record_item(row_inserts(tool_calls), [row])
            await lost(writer.flush())
    name = url.database
    assert server.run("SELECT COUNT(*) FROM turns", database=name) == [(1,)]
    assert server.run("SELECT COUNT(*) FROM tool_calls", database=name) == [(1,)]
    assert server.run("SELECT state, attempts FROM events", database=name) == [("queued", 1)] * 3
