"""Work that runs beside requests: loops that survive a failure, and endings that outlive their request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

from agensh.clock import Clock
from agensh.outage import no_room

log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds before a loop that failed goes on


async def supervise(name: str, loop: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run an endless loop and, whatever fails in it (the disk, git, one odd pull request), log it and run it again.

    One failed check must not take the forge down for everybody.
    """
    while True:
        try:
            await loop()
        except Exception as error:
            if not no_room(error):  # which the store says, once
                log.exception("background work failed", extra={"loop": name})
        await clock.sleep(PAUSE)


class Tasks:
    """Tasks that must end although nobody may be waiting for them any more; all are awaited at the stop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task and keep it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the end of a request failed", extra={"error": str(error)})

    async def drain(self) -> None:
        """Wait for all of them."""
        while self._tasks:
            await asyncio.wait(self._tasks)
