"""Waiting: for one of two things, and for a database to come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from agensh.clock import Clock, SystemClock
from agensh.db import DatabaseUnavailable

T = TypeVar("T")

DATABASE_WAIT = 1.0  # seconds between tries while the runtime database is away
log = logging.getLogger(__name__)


async def sleep_or_event(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Return after `seconds` of the clock, or as soon as the event is set."""
    if event.is_set():
        return
    if isinstance(clock, SystemClock):
        # The same without two tasks: every listener of a host comes here for every post.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await event.wait()
        return
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(seconds))
        watcher = group.create_task(event.wait())
        await asyncio.wait((sleeper, watcher), return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()
        watcher.cancel()


async def surely(clock: Clock, operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation until the database takes it, or until the caller is cancelled.

    For what has to be settled however long the database is away: an event that was delivered must not stay in flight.
    """
    while True:
        try:
            return await operation()
        except DatabaseUnavailable as error:
            log.debug("waiting for the runtime database", extra={"error": str(error)})
        await clock.sleep(DATABASE_WAIT)
