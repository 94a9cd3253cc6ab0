"""Tells the board what the workers of this host do, so that whoever looks at the board sees it.

Told again when something changed, at most every `OFTEN` seconds, and every `SELDOM` seconds in any case: the board
keeps it in memory only. A board that does not answer is told later; nobody waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from agensh.clients.board import WorkerState
from agensh.clock import Clock
from agensh.errors import ServiceError

OFTEN = 10.0  # seconds
SELDOM = 120.0  # seconds
log = logging.getLogger(__name__)


async def report_workers(
    read: Callable[[], Sequence[WorkerState]], tell: Callable[[Sequence[WorkerState]], Awaitable[None]], clock: Clock
) -> None:
    """Run until it is cancelled."""
    told: Sequence[WorkerState] | None = None
    told_at = clock.monotonic()
    while True:
        states = read()
        if states != told or clock.monotonic() - told_at >= SELDOM:
            try:
                await tell(states)
            except ServiceError as error:
                log.info("the board is not told of the workers", extra={"error": str(error)})
            else:
                told, told_at = states, clock.monotonic()
        await clock.sleep(OFTEN)
