"""Time, as an argument.

`Clock` is what every part asks for the time and for a wait, so that tests inject their own. `RunClock` derives all the
times of a run from its `t0`: a restarted process that knows `t0` and the timing resumes the same clock (arXiv
2609.26781, appendix C gives the defaults). The speed factor of a rehearsal is applied here and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a part may ask of time."""

    def time(self) -> float:
        """Return seconds since the epoch (wall clock)."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for measuring intervals."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that many seconds; a negative wait returns after one pass of the event loop."""
        ...


def _elapsed() -> float:
    """Seconds that no setting of the clock changes; where the system can tell, with the time it was suspended."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


class SystemClock:
    """The machine's own time, read from the wall once: a step of the wall clock moves nothing that is under way.

    Claims, reminders and waits for a next try are points of wall time, some of them stored. If the wall clock is set an
    hour back or forth while a process lives, they come when they would have come; the process knows the new time when
    it is started again.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._began = wall() - _elapsed()

    def time(self) -> float:
        return self._began + _elapsed()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def utc(seconds: float) -> datetime:
    """Return epoch seconds as an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def iso(seconds: float) -> str:
    """Return epoch seconds as ISO 8601 UTC with milliseconds, e.g. `2026-01-31T09:30:00.125Z`."""
    return utc(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Timing:
    """The run's durations in seconds, before the speed factor."""

    budget: float = 6 * 3600.0
    stagger: float = 30.0
    """Between two workers' starts while that falls into the ramp."""
    ramp: float = 3600.0
    stagger_after_ramp: float = 3.0
    idle: float = 600.0
    """An idle worker gets the idle prompt after this long."""
    wind_down: float = 45 * 60.0
    """Before the end: the first reminder."""
    last_call: float = 5 * 60.0
    """Before the end: the second reminder."""
    speed: float = 1.0
    """Every duration above is divided by this; 60 makes an hour a minute."""


class RunClock:
    """The times of one run, all derived from `t0` (epoch seconds of the first activation)."""

    def __init__(self, t0: float, timing: Timing) -> None:
        self.t0 = t0
        self.timing = timing

    def scaled(self, seconds: float) -> float:
        """Return a duration of the spec as it passes in this run."""
        return seconds / self.timing.speed

    def start_of(self, index: int) -> float:
        """Return when worker `index` (0 first) starts: `stagger` apart inside the ramp, then closer together."""
        timing = self.timing
        in_ramp = int(timing.ramp // timing.stagger) if timing.stagger else index
        if index <= in_ramp:
            offset = index * timing.stagger
        else:
            offset = in_ramp * timing.stagger + (index - in_ramp) * timing.stagger_after_ramp
        return self.t0 + self.scaled(offset)

    @property
    def deadline(self) -> float:
        """When the run stops."""
        return self.t0 + self.scaled(self.timing.budget)

    @property
    def wind_down_at(self) -> float:
        """When the first reminder is due."""
        return self.deadline - self.scaled(self.timing.wind_down)

    @property
    def last_call_at(self) -> float:
        """When the second reminder is due."""
        return self.deadline - self.scaled(self.timing.last_call)

    @property
    def idle_after(self) -> float:
        """Seconds of idleness after which a worker gets the idle prompt."""
        return self.scaled(self.timing.idle)

    def left(self, now: float) -> float:
        """Return the seconds until the deadline, never negative."""
        return max(0.0, self.deadline - now)
