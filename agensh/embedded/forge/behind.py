"""What could not follow a moved ref, because the store took no writes or the disk was full: it follows when it can.

A ref that has moved stands, whatever the store says next; to answer that nothing was kept would be wrong, and git would
not send the push again. Rows that are missing when the forge stops are made up for by `sync.reconcile` at the next
start; a merged branch that was to be deleted stays.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable

from agensh.clock import Clock
from agensh.embedded.forge.git import GitError
from agensh.outage import no_room

PAUSE = 1.0  # seconds before the store is tried again

Work = Callable[[], Awaitable[object]]


class Behind:
    """What waits for room, in the order in which it happened."""

    def __init__(self, clock: Clock, on_full: Callable[[Exception], None]) -> None:
        """`on_full` is told of a full disk that the store did not meet itself."""
        self._clock = clock
        self._on_full = on_full
        self._waiting: deque[Work] = deque()
        self._any = asyncio.Event()

    async def now_or_later(self, work: Work) -> bool:
        """Do it now, or as soon as it can be done and all before it is; False for later. It may be done twice."""
        if not self._waiting and await self._done(work):
            return True
        self._waiting.append(work)
        self._any.set()
        return False

    async def run(self) -> None:
        """Do what waits, until cancelled."""
        while True:
            await self._any.wait()
            while self._waiting:
                try:
                    done = await self._done(self._waiting[0])
                except BaseException:
                    self._waiting.popleft()  # it is not the store that fails here, and others wait
                    raise
                if done:
                    self._waiting.popleft()
                else:
                    await self._clock.sleep(PAUSE)
            self._any.clear()

    async def _done(self, work: Work) -> bool:
        try:
            await work()
        except sqlite3.OperationalError:  # which the store says, once
            return False
        except (OSError, GitError) as error:
            if not (error.no_room if isinstance(error, GitError) else no_room(error)):
                raise
            self._on_full(error)
            return False
        return True
