"""What the benchmark suite says about its figures."""

from __future__ import annotations

import json
from pathlib import Path

from tests.load.figures import Figure, at_least, at_most, comparison, read_last, write

RATE = Figure("rate", 600.0, "/s", 1000.0, (at_least(0.5, "ratio"), at_least(500)))
SLOW = Figure("slow", 2.0, "ms", 1.0, (at_most(1.15, "ratio"),))
PLAIN = Figure("plain", 3.14159265, "s")


def test_bounds_on_value_and_ratio() -> None:
    assert RATE.missed == []
    assert [str(wanted) for wanted in SLOW.missed] == ["ratio <= 1.15"]
    assert Figure("no floor", 1.0, "ms", None, (at_most(1.15, "ratio"),)).missed != []
    assert "ratio >= 0.5 ok, value >= 500 ok" in RATE.line()
    assert "ratio <= 1.15 MISSED" in SLOW.line()


def test_the_result_and_the_comparison_with_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    assert read_last(path) == []
    write(path, [RATE, PLAIN], [])
    last = read_last(path)
    assert last == [
        {"name": "rate", "value": 600.0, "unit": "/s", "floor": 1000.0, "ratio": 0.6},
        {"name": "plain", "value": 3.14159, "unit": "s", "floor": None, "ratio": None},
    ]
    now = Figure("rate", 900.0, "/s", 1000.0)
    (line,) = comparison(last, [now, SLOW])
    assert line.split() == ["rate", "600", "->", "900", "+50", "%", "ratio", "0.60", "->", "0.90"]
    write(path, [now], last)
    assert {item["name"]: item["value"] for item in json.loads(path.read_text())} == {"rate": 900.0, "plain": 3.14159}
