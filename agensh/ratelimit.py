"""How often one caller may call: a token bucket a key, in memory, without timers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agensh.clock import Clock

KEYS = 16_384  # callers remembered; far more than a team has tokens


@dataclass(frozen=True, slots=True)
class Rate:
    """`burst` calls at once, then `per_second`; a rate of 0 means no limit."""

    per_second: float
    burst: int


class RateLimiter:
    """One bucket a caller: full at first, refilled all the time, a call takes one."""

    def __init__(self, rate: Rate, clock: Clock, *, keys: int = KEYS) -> None:
        self._interval = 1.0 / rate.per_second if rate.per_second > 0 else 0.0
        self._room = max(1, rate.burst) * self._interval
        self._clock = clock
        self._keys = keys
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When a caller's bucket will be full again (monotonic); what is in the past is full."""

    def take(self, key: str) -> float:
        """Count a call; return 0.0 when it may go on, else the seconds to wait (and the call is not counted)."""
        if not self._interval:
            return 0.0
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key, now)) + self._interval
        # A hair of tolerance: sums of intervals round.
        wait = full_at - now - self._room
        if wait > self._interval * 1e-6:
            return wait
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._keys:
            self._full_at.popitem(last=False)
        return 0.0
