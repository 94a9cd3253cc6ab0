"""One writer for all workers of a node: what many routers want written goes into few transactions.

Operations run in the order in which they were submitted. While a transaction is under way the next ones gather, so 64
routers cost about as many commits as the disk takes, not as many as they ask for. An operation is a function of the
connection alone and safe to repeat from its start: when one of a batch fails, the batch is rolled back and each
operation runs in a transaction of its own, so that a mistake in one reaches only its own caller.

What many ask for in the same words is put together: items of one `Merge` become one call in each transaction, before or
after everything else of it, so that 500 workers who hear of one post cost a few statements and not some thousands.

`submit` waits until the commit; `record` does not wait: its rows are kept (bounded) until a commit took them, over any
number of failures of the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Table, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agensh.clock import Clock
from agensh.db import OUTAGE, DatabaseUnavailable, begin_write, no_room, retrying
from agensh.outage import Outage
from router.cursors import write_cursors
from router.tables import cursors, runs

T = TypeVar("T")
ItemT = TypeVar("ItemT")
Operation = Callable[[AsyncConnection], Awaitable[T]]

BATCH = 1000  # operations a transaction at most
GATHER = 0.05  # seconds in which unwaited operations come together; a killed host loses as much of its record
BACKLOG = 100_000  # unwaited operations kept while the database is away; the oldest give way
RETRY_WAIT = 1.0  # seconds between tries of unwaited operations
SUSPECT = 10  # tries of one unwaited operation after which it may be at fault itself
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Merge(Generic[ItemT, T]):
    """Writes many items with few statements; make one object a purpose and keep it."""

    run: Callable[[AsyncConnection, Sequence[ItemT]], Awaitable[Sequence[T]]]
    """Returns one result an item, in their order; safe to repeat from its start, with any part of the items."""
    last: bool = False
    """After everything else of its transaction (what changes rows that others insert), not before."""


def row_inserts(table: Table) -> Merge[Sequence[Mapping[str, Any]], None]:
    """Return the merge that inserts rows; an item is some rows, all of one shape."""

    async def run(connection: AsyncConnection, items: Sequence[Sequence[Mapping[str, Any]]]) -> Sequence[None]:
        await connection.execute(insert(table), [row for rows in items for row in rows])
        return [None] * len(items)

    return Merge(run)


@dataclass(slots=True)
class _Job:
    operation: Operation[Any] | None
    waiter: asyncio.Future[Any] | None
    merge: Merge[Any, Any] | None = None
    item: Any = None
    tries: int = 0

    @property
    def place(self) -> int:
        """Which part of a transaction runs it."""
        return 1 if self.merge is None else 2 if self.merge.last else 0

    def settle(self, result: Any) -> None:
        """Hand the result to who waits for it."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(result)

    def refuse(self, error: Exception) -> None:
        """Hand an error to who waits for it."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)


def database_outage(clock: Clock) -> Outage:
    """Return what tells of the runtime database."""
    return Outage(log, clock, "the runtime database works again")


class Writer:
    """Group commit over one engine; `run` is its task, `close` writes what is left and ends it."""

    def __init__(self, engine: AsyncEngine, clock: Clock, outage: Outage | None = None) -> None:
        """`outage` tells of the database; writers over one share it."""
        self.engine = engine
        self._name = f"writer:{uuid.uuid4().hex}"
        self._outage = outage or database_outage(clock)
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self._unwaited = 0
        self._dropped = 0
        self._work = asyncio.Event()
        self._awaited = asyncio.Event()
        """Somebody waits for an operation, or the writer is to end."""
        self._closing = False

    async def submit(self, operation: Operation[T]) -> T:
        """Run `operation` in a transaction and return its result once it is committed.

        DatabaseUnavailable when the database does not take it; nothing of it is written then. A caller that is
        cancelled while it waits may find it written: every write carries its own key.
        """
        return cast("T", await self._wait_for(_Job(operation, self._new_waiter())))

    async def submit_item(self, merge: Merge[ItemT, T], item: ItemT) -> T:
        """Write an item together with others of its merge; as `submit` otherwise."""
        return cast("T", await self._wait_for(_Job(None, self._new_waiter(), merge, item)))

    def record(self, operation: Operation[object]) -> None:
        """Run `operation` soon, after everything submitted before it; never blocks."""
        self._keep(_Job(operation, None))

    def record_item(self, merge: Merge[ItemT, Any], item: ItemT) -> None:
        """Write an item soon, together with others of its merge; never blocks."""
        self._keep(_Job(None, None, merge, item))

    def _new_waiter(self) -> asyncio.Future[Any]:
        if self._closing:
            raise DatabaseUnavailable("The node host is stopping; nothing was written.")
        return asyncio.get_running_loop().create_future()

    async def _wait_for(self, job: _Job) -> Any:
        assert job.waiter is not None, "it was made with one"
        self._jobs.append(job)
        self._awaited.set()
        self._work.set()
        return await job.waiter

    def _keep(self, job: _Job) -> None:
        if self._unwaited >= BACKLOG:
            self._drop_oldest()
        self._jobs.append(job)
        self._unwaited += 1
        self._work.set()

    async def read(self, operation: Operation[T]) -> T:
        """Run a reading operation on a connection of its own; DatabaseUnavailable when the database is away.

        It sees what is committed; `flush` first where it has to see what was recorded before.
        """
        try:
            async with self.engine.connect() as connection:
                found = await operation(connection)
        except OUTAGE as error:
            self._failed(error, "reading")
            raise DatabaseUnavailable(f"The runtime database cannot be read: {error}") from error
        self._outage.worked("reading")
        return found

    async def flush(self) -> None:
        """Wait until everything submitted so far is committed."""
        await self.submit(_nothing)

    async def run(self) -> None:
        """Write until `close`; what was submitted before it is written first."""
        while True:
            await self._work.wait()
            if not self._jobs:
                if self._closing:
                    return
                self._work.clear()
                self._awaited.clear()
                continue
            if len(self._jobs) == self._unwaited:
                await self._gather()
            batch = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
            left = await self._write(batch)
            self._unwaited -= sum(job.waiter is None for job in batch) - len(left)
            if left:
                self._jobs.extendleft(reversed(left))
                await self._clock.sleep(RETRY_WAIT)

    @property
    def backlog(self) -> int:
        """How many unwaited operations are not written yet."""
        return self._unwaited

    def close(self) -> None:
        """Let `run` end once everything is written."""
        self._closing = True
        self._awaited.set()
        self._work.set()

    async def _gather(self) -> None:
        """Let records come together for a moment: each tool call makes some, and nobody waits for them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER):
                await self._awaited.wait()

    async def _write(self, batch: list[_Job]) -> list[_Job]:
        """Write a batch; return the records that have to be tried again later, in order."""
        try:
            results = await self._transaction(batch)
        except Exception:  # noqa: BLE001 - found again, with its owner, when each runs alone
            return await self._write_each(batch)
        # In the order in which they were written: who claims events must not know of one before who has put it.
        for job, result in sorted(zip(batch, results, strict=True), key=lambda pair: pair[0].place):
            job.settle(result)
        return []

    async def _write_each(self, batch: list[_Job]) -> list[_Job]:
        for index, job in enumerate(batch):
            error = await self._write_one(job)
            if error is not None:
                # Those who wait decide themselves what to do about it; records stay, in their order.
                for other in batch[index + 1 :]:
                    other.refuse(_unavailable(error))
                return [other for other in batch[index:] if other.waiter is None]
        return []

    async def _write_one(self, job: _Job) -> Exception | None:
        """Write one operation; return the error when the database is away and the operation is to be kept."""
        try:
            job.settle((await self._transaction([job]))[0])
        except OUTAGE as error:
            if job.waiter is not None:
                job.refuse(_unavailable(error))
                return None
            job.tries += 1
            # A full disk may have room for a small write and none for this one: that is not its fault.
            suspect = job.tries % SUSPECT == 0 and not no_room(error)
            if self._closing or (suspect and await self._takes_writes()):
                log.error("a record could not be written", exc_info=error)
                return None
            log.debug("a record waits for the database", extra={"error": str(error), "tries": job.tries})
            return error
        except Exception as error:
            if job.waiter is None:
                log.error("a record could not be written", exc_info=error)
            job.refuse(error)
        return None

    async def _takes_writes(self) -> bool:
        """Say whether the database is fine, so that a record it keeps refusing must be at fault itself."""
        try:
            await self._transaction([_Job(_touch, None)])
        except OUTAGE:
            return False
        return True

    async def _transaction(self, jobs: Sequence[_Job]) -> list[Any]:
        """Run the jobs in one transaction; one of which it cannot be known whether it was committed is waited for."""
        attempt = _Attempt(self._name if self.engine.dialect.name != "sqlite" else "")
        while True:
            try:
                results = await retrying(lambda: attempt.run(self.engine, jobs), sleep=self._clock.sleep)
            except OUTAGE as error:
                self._failed(error, "writing")
                if not attempt.in_doubt or self._closing:
                    raise
            else:
                self._outage.worked("writing")
                return results
            await self._clock.sleep(RETRY_WAIT)

    def _failed(self, error: Exception, at: str) -> None:
        cause = error.__cause__ if isinstance(error, DatabaseUnavailable) and error.__cause__ else error
        self._outage.failed("the disk is full" if no_room(error) else "the runtime database is away", cause, at=at)

    def _drop_oldest(self) -> None:
        for job in self._jobs:
            if job.waiter is None:
                self._jobs.remove(job)
                self._unwaited -= 1
                self._dropped += 1
                log.error("record backlog is full; the oldest row is lost", extra={"dropped": self._dropped})
                return


class _Attempt:
    """One batch's way into the database, over any number of tries.

    A connection that is lost during a commit leaves open whether it happened. To run the batch again would then claim
    events for a second turn, and count calls twice; so each transaction leaves a mark, and the next try looks for it.
    SQLite has no such moment, for its commit is a call of this process.
    """

    def __init__(self, writer: str) -> None:
        """`writer` names the row of the mark; empty for none."""
        self._writer = writer
        self._mark = ""
        self._results: list[Any] = []

    @property
    def in_doubt(self) -> bool:
        """Say whether the last try may have been committed."""
        return bool(self._mark)

    async def run(self, engine: AsyncEngine, jobs: Sequence[_Job]) -> list[Any]:
        """Run the jobs, unless an earlier try was committed after all; return their results."""
        async with begin_write(engine) as connection:
            if self._mark and await self._committed(connection):
                return self._results
            self._mark = ""
            results = await _run(connection, jobs)
            if self._writer:
                mark = uuid.uuid4().hex
                await write_cursors(connection, {("", self._writer): mark})
                self._mark, self._results = mark, results
        self._mark = ""
        return results

    async def _committed(self, connection: AsyncConnection) -> bool:
        # Locked: the server may still be about to commit what it had received.
        mine = select(cursors.c.value).where(cursors.c.worker == "", cursors.c.source == self._writer)
        return bool(await connection.scalar(mine.with_for_update()) == self._mark)


async def _run(connection: AsyncConnection, jobs: Sequence[_Job]) -> list[Any]:
    """Run the jobs of one transaction and return their results, in the order of the jobs."""
    results: list[Any] = [None] * len(jobs)
    merged: dict[Merge[Any, Any], list[int]] = {}
    for index, job in enumerate(jobs):
        if job.merge is not None:
            merged.setdefault(job.merge, []).append(index)

    async def run_merged(*, last: bool) -> None:
        for merge, indices in merged.items():
            if merge.last is last:
                found = await merge.run(connection, [jobs[index].item for index in indices])
                for index, result in zip(indices, found, strict=True):
                    results[index] = result

    await run_merged(last=False)
    for index, job in enumerate(jobs):
        if job.operation is not None:
            results[index] = await job.operation(connection)
    await run_merged(last=True)
    return results


async def _nothing(_connection: AsyncConnection) -> None:
    return None


async def _touch(connection: AsyncConnection) -> None:
    await connection.execute(update(runs).values(t0=runs.c.t0))


def _unavailable(error: Exception) -> DatabaseUnavailable:
    unavailable = DatabaseUnavailable(f"The runtime database did not take a write: {error}")
    unavailable.__cause__ = error
    return unavailable
