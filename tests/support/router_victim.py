"""A queue that is killed with SIGKILL at a chosen statement, over and over; run as a program.

`python -m tests.support.router_victim FOLDER` prints one JSON line a kill: what the worker saw, and the final rows.
Every scenario runs in a fork, killed before its n-th statement; a second fork takes over without being killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

from agensh.clock import SystemClock
from agensh.db import migrate, open_engine
from agensh.urls import sqlite_url
from router.events import Kind, NewEvent, Priority, Source
from router.queue import EventQueue, RetryPolicy
from router.tables import MIGRATIONS, VERSION_TABLE, cursors, events
from router.writer import Writer

WORKER = "demo-worker1"
SOURCE = [f"post:{number}" for number in range(1, 7)]
"""What the source has; the worker's cursor says how many of them were put."""
MOST_STATEMENTS = 200


class Log:
    """What the worker saw and what the queue promised, written so that a kill cannot take it back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, key: str) -> None:
        os.write(self._file, f"{what} {key}\n".encode())


def kill_before(writer: Writer, number: int) -> None:
    """Kill this process before its `number`-th statement, commits counted."""
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(writer.engine.sync_engine, "before_cursor_execute", step)
    event.listen(writer.engine.sync_engine, "commit", step)


async def work(url: str, log: Log, killed_at: int) -> None:
    """Put, deliver mid-turn, deliver in turns, acknowledge, until everything is delivered."""
    engine = open_engine(url)
    writer = Writer(engine, SystemClock())
    task = asyncio.create_task(writer.run())
    if killed_at:
        kill_before(writer, killed_at)
    queue = EventQueue(WORKER, writer, SystemClock(), RetryPolicy())
    await queue.recover()
    while (done := int(await queue.cursor("chat") or 0)) < len(SOURCE):
        # The overlap of two is what a listener reads again after a restart.
        batch = SOURCE[max(0, done - 2) : done + 2]
        await queue.put([message(key) for key in batch], {"chat": str(min(done + 2, len(SOURCE)))})
        log.write("put", batch[-1])
    waiting = await queue.waiting_posts()
    if waiting:
        shown = waiting[0]
        queue.note_handed_out([shown.id], None, "notice")
        log.write("saw", shown.summary)
        queue.note_acknowledged([shown.id])
        await writer.flush()
        log.write("acked", shown.summary)
    while (claim := await queue.claim("s")) is not None:
        for item in claim.events:
            log.write("saw", item.summary)
        await queue.ack([item.id for item in claim.events])
        for item in claim.events:
            log.write("acked", item.summary)
    writer.close()
    await task
    await engine.dispose()


def message(key: str) -> NewEvent:
    return NewEvent(Source.MATTERMOST, Kind.DIRECT_MESSAGE, key, key, 0.0, priority=Priority.DIRECT)


def forked(body: Callable[[], None]) -> int:
    """Run `body` in a child; return how it ended (negative: the signal)."""
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def final_rows(url: str) -> dict[str, Any]:
    engine = open_engine(url)
    async with engine.connect() as connection:
        states = (await connection.execute(select(events.c.dedupe_key, events.c.state))).all()
        cursor = await connection.scalar(select(cursors.c.value))
    await engine.dispose()
    return {"states": [[key, state] for key, state in states], "cursor": cursor}


def report(url: str, pipe: int) -> None:
    os.write(pipe, json.dumps(asyncio.run(final_rows(url))).encode())


def scenario(url: str, log: Path, killed_at: int) -> None:
    asyncio.run(work(url, Log(log), killed_at))


def main(folder: Path) -> None:
    template = folder / "template.sqlite3"
    migrate(sqlite_url(template), MIGRATIONS, version_table=VERSION_TABLE)
    for killed_at in range(1, MOST_STATEMENTS):
        database, log_path = folder / f"{killed_at}.sqlite3", folder / f"{killed_at}.log"
        shutil.copy(template, database)
        url = sqlite_url(database)
        first = forked(partial(scenario, url, log_path, killed_at))
        second = forked(partial(scenario, url, log_path, 0))
        reader, writer = os.pipe()
        forked(partial(report, url, writer))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found: dict[str, Any] = json.loads(pipe.read())
        log = log_path.read_text(encoding="utf-8").splitlines() if log_path.exists() else []
        sys.stdout.write(json.dumps({"at": killed_at, "first": first, "second": second, "log": log} | found) + "\n")
        sys.stdout.flush()  # or the next fork carries it away in its copy of the buffer
        if first == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
