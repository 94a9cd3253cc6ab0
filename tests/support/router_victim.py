"""A queue that is killed with SIGKILL at every statement (see `tests/support/victim.py`).

`python -m tests.support.router_victim FOLDER` prints one JSON line a kill.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from agensh.clock import SystemClock
from agensh.db import migrate, open_engine
from router.events import Kind, NewEvent, Priority, Source
from router.queue import EventQueue, RetryPolicy
from router.tables import MIGRATIONS, VERSION_TABLE
from router.writer import Writer
from tests.support.victim import Log, kill_at_each, kill_before

WORKER = "demo-worker1"
SOURCE = [f"post:{number}" for number in range(1, 7)]
"""What the source has; the worker's cursor says how many of them were put."""


async def work(url: str, log: Log, killed_at: int) -> None:
    """Put, deliver mid-turn, deliver in turns, acknowledge, until everything is delivered."""
    engine = open_engine(url)
    writer = Writer(engine, SystemClock())
    task = asyncio.create_task(writer.run())
    kill_before(engine, killed_at)
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


if __name__ == "__main__":
    kill_at_each(Path(sys.argv[1]), partial(migrate, scripts=MIGRATIONS, version_table=VERSION_TABLE), work)
