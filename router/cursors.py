"""Rows of `cursors`, written whether they are there or not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sqlalchemy import Executable, delete
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from router.tables import cursors


async def write_cursors(connection: AsyncConnection, values: Mapping[tuple[str, str], str]) -> None:
    """Set cursor rows, by worker and source, inside a transaction; an empty value deletes the row."""
    for (worker, source), value in values.items():
        if not value:
            await connection.execute(delete(cursors).where(cursors.c.worker == worker, cursors.c.source == source))
    rows = [{"worker": worker, "source": source, "value": value} for (worker, source), value in values.items() if value]
    if rows:
        await connection.execute(_upsert_cursors(connection.dialect.name), rows)


@cache
def _upsert_cursors(dialect: str) -> Executable:
    if dialect == "sqlite":
        lite = sqlite.insert(cursors)
        return lite.on_conflict_do_update(index_elements=["worker", "source"], set_={"value": lite.excluded.value})
    my = mysql.insert(cursors)
    return my.on_duplicate_key_update(value=my.inserted.value)
