"""Waiting for one of two things."""

from __future__ import annotations

import asyncio

from agensh.clock import Clock


async def sleep_or_event(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Return after `seconds` of the clock, or as soon as the event is set."""
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(seconds))
        watcher = group.create_task(event.wait())
        await asyncio.wait((sleeper, watcher), return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()
        watcher.cancel()
