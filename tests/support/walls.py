"""A wall clock that somebody sets, under the clock of a process."""

from __future__ import annotations

import time

from agensh.clock import SystemClock

HOUR = 3600.0  # seconds


class Wall:
    """Shows the machine's time plus what it was set by."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def __call__(self) -> float:
        return time.time() + self.offset

    def step(self, seconds: float) -> None:
        """Set it forth, or back."""
        self.offset += seconds

    def clock(self) -> SystemClock:
        """Return the clock of a process that starts now."""
        return SystemClock(self)
