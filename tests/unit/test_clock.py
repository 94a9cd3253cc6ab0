from __future__ import annotations

import asyncio

import pytest

from agensh.clock import RunClock, Timing, iso
from tests.support.clock import ManualClock


@pytest.mark.parametrize(
    ("index", "offset"),
    [(0, 0), (1, 30), (119, 119 * 30), (120, 3600), (121, 3603), (1023, 3600 + 903 * 3)],
)
def test_workers_start_30_s_apart_in_the_first_hour_then_3_s(index, offset):
    assert RunClock(1000.0, Timing()).start_of(index) == 1000.0 + offset


def test_the_speed_factor_applies_to_every_time():
    clock = RunClock(0.0, Timing(speed=60.0))
    assert clock.deadline == 360.0
    assert clock.wind_down_at == 360.0 - 45.0
    assert clock.last_call_at == 360.0 - 5.0
    assert clock.idle_after == 10.0
    assert clock.start_of(2) == 1.0


def test_no_stagger_starts_all_at_once():
    clock = RunClock(5.0, Timing(stagger=0.0, stagger_after_ramp=0.0))
    assert {clock.start_of(index) for index in range(20)} == {5.0}


def test_nothing_is_left_after_the_deadline():
    clock = RunClock(0.0, Timing(budget=10.0))
    assert clock.left(4.0) == 6.0
    assert clock.left(11.0) == 0.0


def test_iso_has_milliseconds_and_utc():
    assert iso(1_767_225_600.125) == "2026-01-01T00:00:00.125Z"


async def test_the_manual_clock_wakes_sleepers_in_order():
    clock = ManualClock(0.0)
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.time())

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3.0, 1.0, 2.0)]
    await clock.advance(2.5)
    assert woken == [1.0, 2.0]
    await clock.advance(1.0)
    assert woken == [1.0, 2.0, 3.0]
    await asyncio.gather(*tasks)
