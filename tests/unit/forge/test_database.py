"""The forge's store: one writer, shared commits, each write whole or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agensh.embedded.forge.store.database import Database, Tx
from agensh.errors import AgenshError


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "forge.sqlite3")
    database.open()
    yield database
    database.close()


def add(tx: Tx, name: str) -> int:
    return tx.insert("users", name=name, lower_name=name, email=f"{name}@x", password="", created=1)


async def test_one_failing_write_undoes_itself_only(database: Database) -> None:
    def twice(tx: Tx) -> None:
        add(tx, "lost")
        raise ValueError("no")

    results = await asyncio.gather(
        database.write(lambda tx: add(tx, "one")),
        database.write(twice),
        database.write(lambda tx: add(tx, "one")),
        database.write(lambda tx: add(tx, "two")),
        return_exceptions=True,
    )
    assert isinstance(results[0], int)
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], sqlite3.IntegrityError)
    names = await database.read(lambda tx: [row[0] for row in tx.all("SELECT name FROM users ORDER BY id")])
    assert names == ["one", "two"]


async def test_a_check_and_its_insert_do_not_race(database: Database) -> None:
    def once(tx: Tx) -> bool:
        if tx.value("SELECT 1 FROM users"):
            return False
        add(tx, "only")
        return True

    assert sum(await asyncio.gather(*(database.write(once) for _ in range(200)))) == 1


async def test_reads_cannot_write_and_see_what_was_answered(database: Database) -> None:
    await database.write(lambda tx: add(tx, "one"))
    assert await database.read(lambda tx: tx.value("SELECT count(*) FROM users")) == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await database.read(lambda tx: add(tx, "two"))
    assert await database.read(lambda tx: tx.value("SELECT count(*) FROM users")) == 1


async def test_touched_users_are_told_after_the_commit_and_not_after_a_failure(tmp_path: Path) -> None:
    told: list[set[int]] = []
    database = Database(tmp_path / "forge.sqlite3", on_touched=told.append)
    database.open()

    def touch(tx: Tx) -> None:
        tx.touched.add(7)

    def fail(tx: Tx) -> None:
        tx.touched.add(8)
        raise ValueError("no")

    await database.write(touch)
    with pytest.raises(ValueError, match="no"):
        await database.write(fail)
    database.close()
    assert told == [{7}]
    with pytest.raises(AgenshError, match="closed"):
        await database.write(touch)
    with pytest.raises(AgenshError, match="closed"):
        await database.read(touch)
