"""A clock that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq

from agensh.clock import SystemClock


class ManualClock:
    """Time stands still until `advance`; sleepers wake in the order of their times."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    @property
    def sleeping(self) -> int:
        """How many tasks wait for time to pass."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let that much time pass, running every sleeper that becomes due."""
        end = self._now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not future.done():
                future.set_result(None)
            await self.settle()
        self._now = end
        await self.settle()

    @staticmethod
    async def settle() -> None:
        """Give every ready task a chance to run."""
        for _ in range(20):
            await asyncio.sleep(0)


class HastyClock(SystemClock):
    """The machine's own time; it remembers every wait and takes none that is longer than `longest` seconds."""

    def __init__(self, longest: float = 0.1) -> None:
        super().__init__()
        self._longest = longest
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep(min(seconds, self._longest))
