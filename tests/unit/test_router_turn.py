"""A CLI's start and one turn of it, over an adapter that is told what to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from adapters.base import Adapter, HarnessUnavailable, Outcome, SessionLost, Text, TurnEnd, TurnItem, WorkerLaunch
from agensh.clock import SystemClock
from router.queue import RetryPolicy
from router.record import Recorder
from router.turn import drive, start

LAUNCH = WorkerLaunch("t-worker1", Path(), Path(), Path(), Path(), "", "")


class Told(Adapter):
    """Fails at its first starts; says when a turn is over for it."""

    name = "told"

    def __init__(self, *failures: Exception) -> None:
        super().__init__(LAUNCH, cast("Any", None), SystemClock())
        self.failures = list(failures)
        self.stops = 0
        self.in_turn = False

    async def start(self, session: str | None = None) -> str:
        if self.failures:
            raise self.failures.pop(0)
        return session or "fresh"

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        self.in_turn = True
        try:
            yield Text(prompt)
            yield TurnEnd(Outcome.COMPLETED)
        finally:
            self.in_turn = False

    async def interrupt(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        self.stops += 1


async def test_a_turn_is_over_for_the_adapter_when_its_end_is_told() -> None:
    adapter, texts = Told(), list[str]()
    end = await drive(adapter, cast("Recorder", None), "hello", 1, texts, lambda: None)
    assert not adapter.in_turn
    assert (end.outcome, texts) == (Outcome.COMPLETED, ["hello"])


async def test_what_the_machine_refuses_is_tried_again_as_a_cli_that_cannot_run() -> None:
    full = OSError(28, "No space left on device")
    rests: list[int] = []

    async def rest(failures: int) -> None:
        rests.append(failures)

    adapter = Told(full, HarnessUnavailable("not yet"), full)
    assert await start(adapter, "known", 3, rest) == "known"
    assert (rests, adapter.stops) == ([1, 2, 3], 3)
    with pytest.raises(HarnessUnavailable, match="No space left"):
        await start(Told(full, full), None, 1, rest)
    with pytest.raises(SessionLost):
        await start(Told(SessionLost()), "known", 3, rest)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 5), (2, 10), (7, 300), (5000, 300)])
def test_waits_grow_up_to_a_bound_however_long_a_provider_is_away(failures: int, seconds: float) -> None:
    assert RetryPolicy(jitter=0.0).wait(failures) == seconds
