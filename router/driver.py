"""What drives a worker's CLI, in a team (`dispatcher.py`) or alone (`alone.py`): its session, and waits that end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from agensh.clock import Clock
from router.record import Recorder, Session
from router.waiting import sleep_or_event, surely

T = TypeVar("T")


class Parked(Exception):
    """The worker cannot go on."""


class Driver:
    """Keeps the session of one CLI; `_stopping` ends every pause."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self.session = Session()
        self._recorder = recorder
        self._clock = clock
        self._stopping = asyncio.Event()
        self._resting = asyncio.Event()  # no turn runs
        self._resting.set()

    async def _save(self, session: Session) -> None:
        self.session = session
        await self._surely(lambda: self._recorder.save_session(session))

    async def _surely(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await surely(self._clock, operation)

    async def _pause(self, seconds: float) -> None:
        await sleep_or_event(self._clock, seconds, self._stopping)

    def _heard(self) -> None:
        """The session has read the prompt, and with it what begins every session."""
        self.session = replace(self.session, primed=True)
