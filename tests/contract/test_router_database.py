"""Tables, migrations and the writer, on every database they run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, event, func, insert, inspect, make_url, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clock import SystemClock
from agensh.db import DatabaseUnavailable, migrate
from agensh.errors import AgenshError
from agensh.urls import sqlite_url
from router import writer as writer_module
from router.queue import EventQueue, RetryPolicy
from router.tables import MIGRATIONS, VERSION_TABLE, cursors, metadata
from router.writer import Writer
from tests.support.mariadb import MariaDb
from tests.support.router_database import open_writer
from tests.support.router_stage import comment, until


@pytest.fixture(params=["sqlite", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "runtime.sqlite3")
    database: MariaDb = request.getfixturevalue("mariadb_server")
    return database.new_database()


@pytest.fixture
async def writer(url: str) -> AsyncIterator[Writer]:
    async with open_writer(url, SystemClock()) as writer:
        yield writer


OUR_OWN_WORDS = {
    "alembic_version_router.version_num", "events.kind", "events.source", "events.state", "events.via",
    "notices.kind", "notices.via", "processes.started", "runs.state", "tool_calls.kind", "turns.outcome",
}  # fmt: skip
"""Columns that hold names of states and the like, which are ASCII."""


def plain(url: str) -> str:
    drivers = {"sqlite+aiosqlite": "sqlite", "mysql+aiomysql": "mysql+pymysql"}
    parsed = make_url(url)
    return parsed.set(drivername=drivers[parsed.drivername]).render_as_string(hide_password=False)


def test_a_migration_that_does_not_end_keeps_others_out(
    mariadb_server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = mariadb_server.new_database()
    monkeypatch.setattr("agensh.db.MIGRATION_WAIT", 1)
    engine = create_engine(plain(url))
    try:
        with engine.connect() as other:
            other.exec_driver_sql("SELECT GET_LOCK(CONCAT('agensh.', SHA2(DATABASE(), 224)), 1)")
            with pytest.raises(AgenshError, match="another process has been changing the tables of"):
                migrate(url, MIGRATIONS, version_table=VERSION_TABLE)
            assert inspect(engine).get_table_names() == []
            other.invalidate()  # its process ends
        migrate(url, MIGRATIONS, version_table=VERSION_TABLE)
    finally:
        engine.dispose()


def test_the_migrations_make_the_tables_and_unmake_them(url: str) -> None:
    migrate(url, MIGRATIONS, version_table=VERSION_TABLE)
    migrate(url, MIGRATIONS, version_table=VERSION_TABLE)
    engine = create_engine(plain(url))
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, metadata) == []
        migrate(url, MIGRATIONS, version_table=VERSION_TABLE, revision="base")
        assert set(inspect(engine).get_table_names()) == {VERSION_TABLE}
    finally:
        engine.dispose()


async def test_words_keep_every_character_whatever_the_database_has_by_default(mariadb_server: MariaDb) -> None:
    """MariaDB's own default is latin1, and a text that it does not take would stop the queue of its worker."""
    said = "✅→ 🫠 𠜎"
    async with open_writer(mariadb_server.new_database("latin1"), SystemClock()) as writer:
        queue = EventQueue("demo-worker1", writer, SystemClock(), RetryPolicy())
        assert await queue.put([replace(comment(1, said), summary=said)]) == 1
        claim = await queue.claim("session")
        assert claim is not None
        assert claim.events[0].summary == said
        await queue.fail([claim.events[0].id], said)
        database = writer.engine.url.database
        left = await writer.read(
            lambda connection: connection.execute(
                text(
                    "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns WHERE table_schema = "
                    f"'{database}' AND character_set_name <> 'utf8mb4'"
                )
            )
        )
    assert {row[0] for row in left} == OUR_OWN_WORDS


MINE = cursors.c.worker == "w"
"""The rows of these tests; the writer has one of its own on MySQL."""


async def test_many_writers_share_few_transactions(writer: Writer) -> None:
    commits = 0

    def count(_connection: Any) -> None:
        nonlocal commits
        commits += 1

    event.listen(writer.engine.sync_engine, "commit", count)
    queues = [EventQueue(f"demo-worker{n}", writer, SystemClock(), RetryPolicy()) for n in range(1, 65)]
    new = await asyncio.gather(*(queue.put([comment(1, "x")], {"gitea": "1"}) for queue in queues))
    assert new == [1] * 64
    assert commits <= 3


def write(value: str, refused: Callable[[], bool] = lambda: False) -> Any:
    """An operation that notes how many were written before it."""

    async def operation(connection: AsyncConnection) -> None:
        if refused():
            raise OperationalError("write", {}, Exception("disk is full"))
        before = await connection.scalar(select(func.count()).select_from(cursors).where(MINE))
        await connection.execute(insert(cursors).values(worker="w", source=value, value=str(before)))

    return operation


async def written(writer: Writer) -> dict[str, str]:
    await writer.flush()
    rows = await writer.read(
        lambda connection: connection.execute(select(cursors.c.source, cursors.c.value).where(MINE))
    )
    return {row.source: row.value for row in rows}


async def test_records_wait_for_a_database_that_is_away_and_keep_their_order(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_WAIT", 0.01)
    state = {"away": True}
    async with open_writer(url, SystemClock()) as writer:
        writer.record(write("first", lambda: state["away"]))
        writer.record(write("second", lambda: state["away"]))
        with pytest.raises(DatabaseUnavailable, match="disk is full"):
            await asyncio.wait_for(writer.submit(write("asked", lambda: state["away"])), 20)
        writer.record(write("third"))
        assert writer.backlog == 3
        state["away"] = False
        assert await written(writer) == {"first": "0", "second": "1", "third": "2"}


async def test_a_record_that_is_at_fault_itself_does_not_hold_up_the_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RETRY_WAIT", 0.01)
    async with open_writer(url, SystemClock()) as writer:
        writer.record(write("bad", lambda: True))
        writer.record(write("good"))
        await until(lambda: not writer.backlog)
        assert await written(writer) == {"good": "0"}


async def test_the_backlog_is_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BACKLOG", 5)
    async with open_writer(url, SystemClock()) as writer:

        def operation(value: str) -> Any:
            return lambda connection: connection.execute(insert(cursors).values(worker="w", source=value, value=value))

        for number in range(8):
            writer.record(operation(str(number)))
        await writer.flush()
        rows = await writer.read(lambda connection: connection.execute(select(cursors.c.source).where(MINE)))
        assert sorted(rows.scalars()) == ["3", "4", "5", "6", "7"]


async def test_what_was_recorded_is_written_at_the_close(url: str) -> None:
    async with open_writer(url, SystemClock()) as writer:
        writer.record(lambda connection: connection.execute(insert(cursors).values(worker="w", source="s", value="v")))
    engine = create_engine(plain(url))
    try:
        with engine.connect() as connection:
            assert connection.scalar(select(cursors.c.value).where(MINE)) == "v"
    finally:
        engine.dispose()
