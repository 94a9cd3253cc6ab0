"""The way to the provider: a bounded number of requests at a time, in the order of their arrival, and pauses.

When the provider asks for a pause (429, 503, 529), nothing is sent to it until the pause is over, and then a little at
first: the number of places falls to half with each pause and grows by one with each request that goes well. So however
many workers wait, the provider meets a few of them, and the others wait here instead of coming back at one moment.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agensh.gateway.wires import Refusal

FIRST_PAUSE = 1.0  # seconds, when the provider does not say how long
LONGEST_PAUSE = 60.0  # seconds of such a pause
SPREAD = 0.25  # a wait that the gateway names itself is longer by up to this share, so that not all come at once


class Gate:
    """Places toward the provider."""

    def __init__(
        self,
        places: int,
        queue: int,
        patience: float,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """`patience`: seconds a request may wait for a place."""
        self._most = places
        self._places = float(places)
        self._queue = queue
        self._patience = patience
        self._uniform = uniform
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._running = 0
        self._until = 0.0
        self._pauses = 0
        """In a row."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        """Requests under way."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return sum(not waiter.done() for waiter in self._waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and hold it; Refusal (429) when there is none in time."""
        if self._running < int(self._places) and not self._waiting and self._left() <= 0:
            self._running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._running -= 1
            self._release()

    def slow_down(self, pause: float | None) -> None:
        """The provider is overloaded; `pause` is what it asked for, in seconds."""
        if self._left() <= 0:  # answers that were under way together are one event
            self._places = max(1.0, self._places / 2)
            self._pauses += 1
        if pause is None:
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._pauses - 1, 10))
            pause = self._uniform(longest / 2, longest)
        self._until = max(self._until, self._loop.time() + pause)

    def went_well(self) -> None:
        """The provider answered."""
        self._pauses = 0
        self._places = min(float(self._most), self._places + 1)

    def close(self) -> None:
        """Nobody is let through any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left(self) -> float:
        return self._until - self._loop.time()

    async def _wait(self) -> None:
        left = max(0.0, self._left())
        if left > self._patience:
            raise self._busy("The provider asked for a pause.", left)
        if len(self._waiting) >= self._queue:
            raise self._busy("Too many requests wait for the provider.", max(1.0, left))
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        self._release()
        try:
            async with asyncio.timeout(self._patience):
                await waiter
        except TimeoutError:
            self._give_up(waiter)
            raise self._busy("No place toward the provider came free in time.", max(1.0, self._left())) from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done() and not waiter.cancelled():
            # The place came in the same moment; somebody else takes it.
            self._running -= 1
            self._release()
        else:
            waiter.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _release(self) -> None:
        if not self._waiting:
            return
        if (left := self._left()) > 0:
            if self._timer is None or self._timer.when() < self._until:
                self.close()
                self._timer = self._loop.call_later(left, self._pause_over)
            return
        while self._waiting and self._running < int(self._places):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._running += 1
                waiter.set_result(None)

    def _pause_over(self) -> None:
        self._timer = None
        self._release()

    def _busy(self, why: str, wait: float) -> Refusal:
        wait *= 1 + self._uniform(0, SPREAD)
        return Refusal(429, "agensh_busy", f"{why} Try again in {wait:.0f} s.", retry_after=wait)
