"""A runtime database with its writer, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agensh.clock import Clock
from agensh.db import migrate, open_engine
from router.tables import MIGRATIONS, VERSION_TABLE
from router.writer import Writer


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
