"""The real queue of a worker over a database file, and what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import select

from agensh.clock import Clock, SystemClock
from agensh.db import DatabaseUnavailable, migrate, open_engine
from agensh.urls import sqlite_url
from router.events import EventSink, NewEvent
from router.queue import EventQueue, RetryPolicy
from router.tables import MIGRATIONS, VERSION_TABLE, events
from router.writer import Writer

PATIENCE = 30.0  # seconds


class Rows:
    """Reads the events of one worker."""

    def __init__(self, queue: EventQueue, writer: Writer) -> None:
        self.queue = queue
        self._writer = writer

    async def all(self) -> list[Any]:
        """Return the rows in the order in which they were committed."""
        query = select(events).where(events.c.worker == self.queue.worker).order_by(events.c.id)
        async with self._writer.engine.connect() as connection:
            return list(await connection.execute(query))

    async def until(self, count: int, kind: str | None = None) -> list[Any]:
        """Wait for that many events (of a kind) and return them."""
        rows: list[Any] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    rows = [row for row in await self.all() if kind is None or row.kind == kind]
                    if len(rows) >= count:
                        return rows
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{len(rows)} of {count} events ({kind}): {[row.summary for row in rows]}") from None


@asynccontextmanager
async def running_queue(folder: Path, worker: str, clock: Clock | None = None) -> AsyncIterator[Rows]:
    """Open the queue over `folder`, as a node host does; a second opening sees what the first one committed."""
    url = sqlite_url(folder / "runtime.sqlite3")
    await asyncio.to_thread(migrate, url, MIGRATIONS, version_table=VERSION_TABLE)
    engine = open_engine(url)
    clock = clock or SystemClock()
    writer = Writer(engine, clock)
    task = asyncio.create_task(writer.run())
    try:
        yield Rows(EventQueue(worker, writer, clock, RetryPolicy()), writer)
    finally:
        writer.close()
        await task
        await engine.dispose()


@asynccontextmanager
async def listening(listener: Any) -> AsyncIterator[Any]:
    """Run a listener, yield it once it is live, and cancel it at the end."""
    task = asyncio.create_task(listener.run())
    live = asyncio.create_task(listener.live.wait())
    try:
        await asyncio.wait({task, live}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert listener.live.is_set(), f"not live: {listener.last_error or task}"
        yield listener
    finally:
        for each in (live, task):
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None


class Flaky:
    """A sink over another one whose database fails at the calls it is told to, before or after the commit."""

    def __init__(self, sink: EventSink, *, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        self._sink = sink
        self._before = set(before)
        self._after = set(after)
        self.calls = 0
        """Calls that had events to commit."""

    async def put(self, new: Sequence[NewEvent], cursor: Mapping[str, str]) -> int:
        if new:
            self.calls += 1
            if self.calls in self._before:
                raise DatabaseUnavailable
        count = await self._sink.put(new, cursor)
        if new and self.calls in self._after:
            raise DatabaseUnavailable
        return count

    async def cursor(self, source: str) -> str | None:
        return await self._sink.cursor(source)
