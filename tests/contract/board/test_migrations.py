"""The tables: up, down, up again, and the character set of MySQL."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import quote

import pytest
from sqlalchemy import Connection, inspect, make_url, text

from agensh.db import migrate, open_engine
from agensh.db_setup import given_url
from agensh.errors import AgenshError
from board_service.database import prepare
from board_service.migrations import SCRIPTS
from board_service.store import Store
from board_service.tables import VERSION_TABLE, metadata
from tests.contract.board.conftest import Serve
from tests.support.mariadb import MariaDb


async def table_names(url: str) -> set[str]:
    engine = open_engine(url)
    try:
        async with engine.connect() as connection:
            return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
    finally:
        await engine.dispose()


async def test_up_down_and_up_again(database: str, serve: Serve) -> None:
    for _ in range(2):
        await asyncio.to_thread(prepare, database)
        assert await table_names(database) == {*metadata.tables, VERSION_TABLE}
        await asyncio.to_thread(prepare, database)  # nothing to do
        await asyncio.to_thread(migrate, database, SCRIPTS, version_table=VERSION_TABLE, revision="base")
        assert await table_names(database) == {VERSION_TABLE}
    async with serve() as api:
        assert (await api.note("FACT", "x"))["label"] == "G1"


async def test_the_migrations_make_the_tables_the_code_expects(database: str) -> None:
    await asyncio.to_thread(prepare, database)
    engine = open_engine(database)

    def compare(connection: Connection) -> None:
        found = inspect(connection)
        for table in metadata.tables.values():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(table.name)}
            assert columns == {column.name: bool(column.nullable) for column in table.columns}
        (unique,) = found.get_unique_constraints("board_entries")
        assert unique["column_names"] == ["board", "worker", "note_key"]

    try:
        async with engine.connect() as connection:
            await connection.run_sync(compare)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("password", ["p@ss:w/o%rd?#&x y", "pä€ß 密", "-'\"\\"])
async def test_any_password_may_stand_in_the_url(mariadb_server: MariaDb, password: str) -> None:
    """Set by a client that speaks UTF-8, as all do."""
    name = make_url(mariadb_server.new_database()).database
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    account = "'odd'@'127.0.0.1'"
    mariadb_server.run(
        f"CREATE USER {account} IDENTIFIED BY '{quoted}'", f"GRANT ALL ON {name}.* TO {account}", "FLUSH PRIVILEGES"
    )
    try:
        written = f"mysql://odd:{quote(password, safe='')}@127.0.0.1:{mariadb_server.port}/{name}"
        url = given_url(written)
        await asyncio.to_thread(prepare, url)
        assert await table_names(url) == {*metadata.tables, VERSION_TABLE}
    finally:
        mariadb_server.run(f"DROP USER {account}")


async def test_two_processes_may_create_the_tables_at_once(database: str) -> None:
    code = f"from board_service.database import prepare; prepare({database!r})"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", code) for _ in range(2)]
    assert [await process.wait() for process in processes] == [0, 0]
    assert await table_names(database) == {*metadata.tables, VERSION_TABLE}


async def test_the_database_may_have_the_longest_name(mariadb_server: MariaDb) -> None:
    url = mariadb_server.new_database(prefix="d" * 52)
    assert len(url.rsplit("/", 1)[1]) == 64
    await asyncio.to_thread(prepare, url)
    assert await table_names(url) == {*metadata.tables, VERSION_TABLE}


async def test_every_character_set_of_mysql_is_checked(mariadb_server: MariaDb) -> None:
    url = mariadb_server.new_database("latin1")
    await asyncio.to_thread(prepare, url)
    engine = open_engine(url)
    try:
        await Store(engine).check()  # the tables do not depend on the database's default
        async with engine.connect() as connection:
            rows = await connection.execute(text("SHOW SESSION VARIABLES LIKE 'character_set_%'"))
            session = {row[0]: row[1] for row in rows.all()}
        for name in ("client", "connection", "results"):
            assert session[f"character_set_{name}"] == "utf8mb4"
        database = url.rsplit("/", 1)[1]
        mariadb_server.run(
            "ALTER TABLE board_entries MODIFY content VARCHAR(300) CHARACTER SET utf8mb3", database=database
        )
        with pytest.raises(AgenshError, match=r"utf8mb4 all through, but board_entries\.content=utf8mb3"):
            await Store(engine).check()
    finally:
        await engine.dispose()
