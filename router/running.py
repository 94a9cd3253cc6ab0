"""What every process that runs workers does around them: the run's `t0` and state, its writer, its signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clock import Clock, RunClock
from agensh.errors import AgenshError
from agensh.rundir import RunInfo
from router.tables import runs
from router.writer import Writer

SHORTEST_WAIT = 0.5  # seconds; a rehearsal makes waits shorter, but a CLI takes as long to start as ever
FLUSH_LIMIT = 30.0  # seconds the last writes may take
log = logging.getLogger(__name__)


async def activate(writer: Writer, info: RunInfo, clock: Clock) -> RunClock:
    """Set the run's `t0` where it has none yet, mark it as running, and return its clock.

    AgenshError when the database holds another run.
    """
    run_id, now = info.run_id, clock.time()

    async def operation(connection: AsyncConnection) -> float:
        rows = (await connection.execute(select(runs.c.run_id, runs.c.t0))).all()
        for known, t0 in rows:
            if known != run_id:
                raise AgenshError(f"database: it holds run {known!r}; run {run_id!r} needs one of its own.")
            await connection.execute(
                update(runs).where(runs.c.run_id == run_id).values(state="running", stopped_at=None)
            )
            return float(t0)
        await connection.execute(insert(runs).values(run_id=run_id, t0=now, state="running"))
        return now

    try:
        t0 = await writer.submit(operation)
    except IntegrityError:
        # Another host of the run was first; its t0 is there now.
        t0 = await writer.submit(operation)
    log.info("run is active", extra={"run": run_id, "t0": t0, "resumed": t0 != now})
    return RunClock(t0, info.spec.clock.timing())


async def set_state(writer: Writer, info: RunInfo, clock: Clock, state: str) -> None:
    """Write down that the run is in another state since now."""
    change = update(runs).where(runs.c.run_id == info.run_id).values(state=state, stopped_at=clock.time())
    await writer.submit(lambda connection: connection.execute(change))


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT, where this is the main thread."""
    loop = asyncio.get_running_loop()
    numbers: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            loop.add_signal_handler(number, stop)
            numbers.append(number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def running(writer: Writer) -> AsyncIterator[Writer]:
    """Run a writer; at the end it writes what is left, within FLUSH_LIMIT."""
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        writer.close()
        try:
            await asyncio.wait_for(task, FLUSH_LIMIT)
        except TimeoutError:
            log.error("the last records could not be written in time")
