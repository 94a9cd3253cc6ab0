from __future__ import annotations

import pytest

from agensh.cli.run import demo_speed


@pytest.mark.parametrize(
    ("workers", "cpus", "speed"), [(1, 2, 120.0), (8, 2, 120.0), (32, 2, 60.0), (32, 8, 120.0), (128, 2, 30.0)]
)
def test_a_large_team_on_a_small_machine_gets_more_time(workers, cpus, speed):
    assert demo_speed(workers, cpus) == speed
