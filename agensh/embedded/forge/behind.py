"""Rows that could not follow what git has done, because the store took no writes: they follow when it does.

A ref that has moved stands, whatever the store says next; to answer that nothing was kept would be wrong, and git would
not send the push again. What is missing here when the forge stops is made up for by `sync.reconcile` at the next start.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable

from agensh.clock import Clock

PAUSE = 1.0  # seconds before the store is tried again

Work = Callable[[], Awaitable[object]]


class Behind:
    """What waits for the store, in the order in which it happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Work] = deque()
        self._any = asyncio.Event()

    async def now_or_later(self, work: Work) -> bool:
        """Do it now, or as soon as the store takes writes; False for later. `work` may be done more than once."""
        try:
            await work()
        except sqlite3.OperationalError:  # which the store says, once
            self._waiting.append(work)
            self._any.set()
            return False
        return True

    async def run(self) -> None:
        """Do what waits, until cancelled."""
        while True:
            await self._any.wait()
            while self._waiting:
                try:
                    await self._waiting[0]()
                except sqlite3.OperationalError:
                    await self._clock.sleep(PAUSE)
                    continue
                except BaseException:
                    self._waiting.popleft()  # it is not the store that fails here, and others wait
                    raise
                self._waiting.popleft()
            self._any.clear()
