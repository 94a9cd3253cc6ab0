"""Which processes the workers' CLIs are, on record, so that the next host can end what a killed one left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from adapters.base import Process, Runtime
from agensh.clock import Clock
from router.leftovers import started
from router.tables import processes
from router.writer import Writer


class RecordedRuntime:
    """A runtime that puts every process of one worker on record."""

    def __init__(self, runtime: Runtime, worker: str, writer: Writer, clock: Clock) -> None:
        self._runtime = runtime
        self._worker = worker
        self._writer = writer
        self._clock = clock

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Process:
        """See Runtime.spawn."""
        process = await self._runtime.spawn(command, env=env, cwd=cwd, log=log)
        start = started(process.pid)
        if start is not None:
            row = {"worker": self._worker, "pid": process.pid, "started": start, "spawned_at": self._clock.time()}
            self._writer.record(lambda connection: connection.execute(insert(processes).values(**row)))
        return _Recorded(process, start or "", self._writer, self._clock)


class _Recorded:
    """A process whose end is put on record when it is stopped."""

    def __init__(self, process: Process, start: str, writer: Writer, clock: Clock) -> None:
        self._process = process
        self._start = start
        self._writer = writer
        self._clock = clock

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def write_line(self, line: str) -> None:
        """See Process.write_line."""
        await self._process.write_line(line)

    async def read_line(self) -> str | None:
        """See Process.read_line."""
        return await self._process.read_line()

    async def wait(self) -> int:
        """See Process.wait."""
        code = await self._process.wait()
        self._ended()
        return code

    async def stop(self, grace: float = 5.0) -> None:
        """See Process.stop."""
        await self._process.stop(grace)
        self._ended()

    def _ended(self) -> None:
        change = (
            update(processes)
            .where(processes.c.pid == self.pid, processes.c.started == self._start, processes.c.ended_at.is_(None))
            .values(ended_at=self._clock.time())
        )
        self._writer.record(lambda connection: connection.execute(change))


async def recorded_processes(engine: AsyncEngine) -> list[tuple[int, str]]:
    """Return number and start of every process that is not known to have ended."""
    query = select(processes.c.pid, processes.c.started).where(processes.c.ended_at.is_(None))
    async with engine.connect() as connection:
        return [(int(pid), str(start)) for pid, start in await connection.execute(query)]
