"""The database is killed in the middle of writes and started again, under the board service and under a runtime."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError
from tests.support.board_process import make_token, served
from tests.support.chaos import either, lines_of, named_once
from tests.support.mariadb import MariaDb, running_mariadb


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

    async def write(client: BoardClient, names: list[str]) -> None:
        for name in names:
            while name not in acknowledged:
                try:
                    acknowledged[name] = (await client.write("FACT", name, key=name)).seq
                except ServiceError as error:
                    assert error.retryable, error

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
                    group.create_task(write(client, [f"{writer}-{index}" for index in range(each)]))
                group.create_task(listen(reader))
                while len(acknowledged) < killed_after:  # noqa: ASYNC110 (progress is waited for, not an event)
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(server.kill)
                known = dict(acknowledged)
                assert len(known) < writers * each
                # What is in memory is still shown, and every entry that was acknowledged is.
                shown = {entry.content: entry.seq for entry in await reader.read()}
                assert known.items() <= shown.items()
                await asyncio.to_thread(server.start)
            entries = await client.read()
        assert [entry.seq for entry in entries] == heard == list(range(1, writers * each + 1))
        assert {entry.content: entry.seq for entry in entries} == acknowledged
        assert board.end(signal.SIGTERM) == 0
        lines = lines_of("".join(board.lines))
        named_once(lines, "the database is away")
        named_once(lines, "the database works again")
        assert [line for line in lines if line.level in {"warning", "error"}] == [lines[1], lines[2]]
