"""A runtime database with its writer, for tests; `runtime_database` is a fixture: each kind of them, empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agensh.clock import Clock
from agensh.db import migrate, open_engine
from agensh.urls import sqlite_url
from router.tables import MIGRATIONS, VERSION_TABLE
from router.writer import Writer
from tests.support.mariadb import MariaDb


@asynccontextmanager
async def open_writer(url: str, clock: Clock, *, isolation: str = "READ COMMITTED") -> AsyncIterator[Writer]:
    """Migrate the database and run a writer on it, on MySQL at `isolation`."""
    await asyncio.to_thread(migrate, url, MIGRATIONS, version_table=VERSION_TABLE)
    engine = open_engine(url, isolation=isolation)
    writer = Writer(engine, clock)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.close()
        await task
        await engine.dispose()


@pytest.fixture(params=["sqlite", "mariadb", "mariadb at REPEATABLE READ"])
def runtime_database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """URL and isolation of an empty database; on MariaDB it needs the fixture `mariadb_server`."""
    isolation = "REPEATABLE READ" if "REPEATABLE" in request.param else "READ COMMITTED"
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "runtime.sqlite3"), isolation
    server: MariaDb = request.getfixturevalue("mariadb_server")
    return server.new_database(), isolation
