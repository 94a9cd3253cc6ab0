"""The gateway's database, on SQLite and MariaDB: written once, whatever is repeated; and when it is away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import inspect

from agensh.clock import SystemClock
from agensh.db import DatabaseUnavailable, migrate, open_engine
from agensh.gateway.ledger import Begun, Ledger, Settled, read_requests
from agensh.gateway.tables import MIGRATIONS, VERSION_TABLE, metadata
from agensh.gateway.usage import Tokens
from agensh.urls import sqlite_url
from tests.support.gateway import serving_gateway
from tests.support.provider import Answer, Received, provider, usual

ONE, TWO = "demo-worker1", "demo-worker2"
END = Settled("metered", 3.0, 200, "", Tokens(10, 4, 1, 5, 2), 0.25)


@pytest.fixture(params=["sqlite", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "gateway.sqlite3")
    url: str = request.getfixturevalue("mariadb_server").new_database()
    return url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Ledger]:
    ledger = Ledger(url, SystemClock())
    await ledger.open()
    writing = asyncio.create_task(ledger.run())
    try:
        yield ledger
    finally:
        ledger.close()
        await writing
        await ledger.dispose()


def begun(number: int, worker: str = ONE, model: str = "m") -> Begun:
    return Begun(f"{number:032x}", worker, "chat", model, float(number))


async def test_rows_are_written_once_and_summed(database: str) -> None:
    async with opened(database) as ledger:
        for number in [*range(100), 1]:
            ledger.begin(begun(number, model="mödel 🙂"))
        await asyncio.gather(*(ledger.settle(begun(number), END) for number in range(100)))
        await ledger.settle(begun(1), END)
        await ledger.settle(begun(200, TWO), Settled("refused", 1.0, 402, "agensh_budget_spent team"))
        totals = await ledger.totals()
        assert totals[ONE].requests == 100
        assert totals[ONE].spent_usd == pytest.approx(25.0)
        assert totals[ONE].tokens == Tokens(1000, 400, 100, 500, 200)
        assert totals[TWO].requests == 0
    rows = [row async for row in read_requests(database)]
    assert [row["started_at"] for row in rows] == [float(number) for number in [*range(100), 200]]
    assert rows[0]["model"] == "mödel 🙂"


async def test_what_was_open_is_unmetered_after_the_next_start(database: str) -> None:
    async with opened(database) as ledger:
        ledger.begin(begun(1))
        ledger.begin(begun(2))
        await ledger.settle(begun(2), END)
    async with opened(database):
        rows = [row async for row in read_requests(database)]
    assert [row["state"] for row in rows] == ["unmetered", "metered"]


async def test_up_down_and_up_again(database: str) -> None:
    for _ in range(2):
        await asyncio.to_thread(migrate, database, MIGRATIONS, version_table=VERSION_TABLE)
        engine = open_engine(database)
        async with engine.connect() as connection:
            found = await connection.run_sync(
                lambda sync: {
                    name: {column["name"]: column["nullable"] for column in inspect(sync).get_columns(name)}
                    for name in inspect(sync).get_table_names()
                    if name != VERSION_TABLE
                }
            )
        await engine.dispose()
        assert found == {
            name: {column.name: bool(column.nullable) for column in table.columns}
            for name, table in metadata.tables.items()
        }
        await asyncio.to_thread(migrate, database, MIGRATIONS, version_table=VERSION_TABLE, revision="base")


async def test_a_row_that_no_database_takes_holds_up_no_other(tmp_path: Path) -> None:
    database = sqlite_url(tmp_path / "gateway.sqlite3")
    async with opened(database) as ledger:
        wrong = Begun("1" * 32, None, "chat", "m", 1.0)  # type: ignore[arg-type]
        await asyncio.gather(ledger.settle(wrong, END), ledger.settle(begun(2), END), ledger.settle(begun(3), END))
    assert [row["started_at"] async for row in read_requests(database)] == [2.0, 3.0]


async def holding(file: Path) -> sqlite3.Connection:
    """Return a connection that has the write lock.

    Beside the event loop: the gateway may be in the middle of a transaction, which goes on in that loop.
    """
    holder = sqlite3.connect(file, isolation_level=None, timeout=60.0, check_same_thread=False)
    await asyncio.to_thread(holder.execute, "BEGIN IMMEDIATE")
    return holder


async def test_while_the_database_is_away_nothing_new_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the write lock; nobody gets an answer that is not on record, and afterwards all is."""
    monkeypatch.setattr("agensh.db.BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr("agensh.gateway.ledger.PATIENCE", 3.0)
    monkeypatch.setattr("agensh.gateway.ledger.RETRY_WAIT", 0.05)
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        holder = await holding(tmp_path / "gateway.sqlite3")
        body = {"model": "gpt-5.4", "stream": True}
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.ask("/v1/responses", body)
        whole = await gateway.ask("/v1/responses", {"model": "gpt-5.4"})
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "agensh_no_ledger")
        asked = len(upstream.requests)
        assert (await gateway.ask("/v1/responses", body)).status_code == 503
        assert len(upstream.requests) == asked, "the provider is not paid for what cannot be recorded"
        holder.execute("ROLLBACK")
        holder.close()
        async with asyncio.timeout(30):
            while (await gateway.ask("/v1/responses", body)).status_code != 200:  # noqa: ASYNC110 - it tries by itself
                await asyncio.sleep(0.05)
        states = [row["state"] for row in await gateway.rows()]
        assert states.count("metered") == 2, "the one that was cut, and the last"
        assert "open" not in states


async def test_while_the_database_goes_away_every_answer_is_one_that_a_cli_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agensh.db.BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr("agensh.gateway.ledger.PATIENCE", 1.0)
    monkeypatch.setattr("agensh.gateway.ledger.RETRY_WAIT", 0.05)

    async def failing(received: Received, answer: Answer) -> None:
        if b'"fail"' in received.body:
            await answer.json({"error": "no"}, 400)
        else:
            await usual(received, answer)

    async with provider(failing) as upstream, serving_gateway(tmp_path, upstream, models=["m"]) as gateway:
        states: list[str] = []
        for body, status, state in (
            ({"model": "other"}, 403, "refused"),
            ({"model": "m"}, 503, "metered"),  # paid, and not on record in time
            ({"model": "m", "metadata": "fail"}, 503, "failed"),
        ):
            with closing(await holding(tmp_path / "gateway.sqlite3")):
                answered = await gateway.ask("/v1/responses", body)
            assert (answered.status_code, "agensh_" in answered.json()["error"]["code"]) == (status, True)
            states.append(state)
            # Each finds out anew: nothing of the one before waits any more.
            async with asyncio.timeout(30):
                while [row["state"] for row in await gateway.rows()] != states or gateway.gateway.ledger.away:  # noqa: ASYNC110 - it tries by itself
                    await asyncio.sleep(0.02)


async def test_nothing_is_written_once_it_closes(tmp_path: Path) -> None:
    async with opened(sqlite_url(tmp_path / "gateway.sqlite3")) as ledger:
        ledger.close()
        with pytest.raises(DatabaseUnavailable):
            await ledger.settle(begun(1), END)
