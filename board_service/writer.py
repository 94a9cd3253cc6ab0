"""Group commit: one task drains a bounded queue and hands what waits to one transaction.

An item is answered after the commit of its batch. A full queue refuses at once instead of letting everybody wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from agensh.db import OUTAGE
from board_service.errors import overloaded

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupWriter(Generic[Item, Result]):
    """Collects items while a batch is being written and writes them as the next one."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, room: int, batch: int
    ) -> None:
        self._write = write
        self._batch = batch
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue(room)
        self._task = asyncio.create_task(self._run())

    async def submit(self, item: Item) -> Result:
        """Return what the batch made of `item`; Refusal (503) when the queue is full, else what the write raised."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((item, answer))
        except asyncio.QueueFull:
            raise overloaded() from None
        return await answer

    async def aclose(self) -> None:
        """Write what waits, then stop."""
        await self._queue.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            waiting = [await self._queue.get()]
            while len(waiting) < self._batch and not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            try:
                results = await self._write([item for item, _ in waiting])
            except Exception as error:  # whatever it is, each of the waiting gets it, and the next batch its chance
                if not isinstance(error, OUTAGE):  # that is for the writing function to say, once
                    log.exception("batch failed", extra={"items": len(waiting)})
                for _, answer in waiting:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), result in zip(waiting, results, strict=True):
                    if not answer.done():
                        answer.set_result(result)
            finally:
                for _ in waiting:
                    self._queue.task_done()
