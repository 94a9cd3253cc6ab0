"""The token bucket: a burst, then a rate, each caller for itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agensh.ratelimit import Rate, RateLimiter


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a limiter does not wait")


def test_a_burst_then_the_rate() -> None:
    clock = Hands()
    limiter = RateLimiter(Rate(10.0, 5), clock)
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    wait = limiter.take("a")
    assert wait == pytest.approx(0.1)
    assert limiter.take("a") == pytest.approx(0.1)  # a refused call costs nothing
    clock.now += wait
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    clock.now += 60
    assert [limiter.take("a") for _ in range(6)][:5] == [0.0] * 5


def test_callers_do_not_share() -> None:
    limiter = RateLimiter(Rate(1.0, 1), Hands())
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    assert limiter.take("b") == 0.0


def test_no_rate_is_no_limit() -> None:
    limiter = RateLimiter(Rate(0.0, 1), Hands())
    assert all(limiter.take("a") == 0.0 for _ in range(1000))


def test_memory_is_bounded() -> None:
    limiter = RateLimiter(Rate(1.0, 1), Hands(), keys=10)
    for number in range(100):
        assert limiter.take(f"w{number}") == 0.0
    assert limiter.take("w99") > 0
    assert limiter.take("w0") == 0.0


@settings(deadline=None)
@given(st.lists(st.floats(0, 2), max_size=80), st.floats(0.5, 50), st.integers(1, 20))
def test_never_more_than_the_burst_and_the_rate(gaps: list[float], per_second: float, burst: int) -> None:
    clock = Hands()
    limiter = RateLimiter(Rate(per_second, burst), clock)
    taken: list[float] = []
    for gap in gaps:
        clock.now += gap
        wait = limiter.take("a")
        if wait:
            clock.now += wait
            assert limiter.take("a") == 0.0  # the wait it named is enough
        taken.append(clock.now)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + per_second * (taken[last] - start) + 1e-3
