"""The board is told of the workers when something changed, again now and then, and after it was away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agensh.clients.board import WorkerState
from agensh.errors import ServiceError
from router.reporting import OFTEN, SELDOM, report_workers
from tests.support.clock import ManualClock


async def test_it_tells_changes_and_is_not_stopped_by_a_board_that_is_away() -> None:
    clock = ManualClock()
    states = [WorkerState("w1", "idle")]
    told: list[tuple[float, Sequence[WorkerState]]] = []
    away = True

    async def tell(rows: Sequence[WorkerState]) -> None:
        if away:
            raise ServiceError("board", 0, "away", retryable=True)
        told.append((clock.monotonic(), rows))

    began = clock.monotonic()
    task = asyncio.create_task(report_workers(lambda: list(states), tell, clock))
    await clock.advance(OFTEN)
    assert told == []
    away = False
    await clock.advance(OFTEN)
    assert len(told) == 1
    await clock.advance(OFTEN)
    assert len(told) == 1
    states[0] = WorkerState("w1", "parked", "no key")
    await clock.advance(OFTEN)
    assert told[-1][1] == states
    await clock.advance(SELDOM)
    assert len(told) == 3
    assert told[-1][0] - began >= SELDOM
    task.cancel()
