"""What `agensh cost` prints: names and numbers whole, however narrow the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agensh.cli.costing import print_cost
from agensh.runs.cost import Cost, Stop, Used

LONG = "the-team-of-the-long-name-worker"


def printed(cost: Cost, width: int) -> str:
    out = io.StringIO()
    print_cost(Console(file=out, width=width, highlight=False), "demo-1", cost)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_names_and_numbers_are_whole(width: int) -> None:
    used = Used(requests=1601, input=95_786_241, cached=95_575_049, output=175_940, cost_usd=13.97)
    workers = {f"{LONG}{number}": used for number in range(1, 5)}
    text = printed(Cost(total=used, workers=workers, models={"gpt-5.4": used}, hours={0: used}), width)
    assert "…" not in text
    for number in range(1, 5):
        assert text.count(f"{LONG}{number} ") == 1
    for words in ("95,575,049", "$13.97", "gpt-5.4", "0:00 to 1:00"):
        assert words in text


def test_who_was_stopped_is_said() -> None:
    text = printed(Cost(budget_usd=0.05, stops=[Stop("demo-worker1", 61.0, "team", 2)]), 200)
    assert "stopped at 1:01: demo-worker1: the team's budget was spent (2 refused)" in text
    assert "$0.00" in text  # a run without a request has a cost as well
