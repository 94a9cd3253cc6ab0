"""Tokens and money, counted from rows of the gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agensh.runs.cost import CostCounter
from agensh.runs.html import money, render_html
from agensh.runs.report import build_report
from tests.support.records import T0, pull, record

ONE, TWO = "demo-worker1", "demo-worker2"


def row(worker: str, at: float, state: str = "metered", **more: Any) -> dict[str, Any]:
    zero = {f"{name}_tokens": 0 for name in ("input", "cached", "cache_write", "output", "reasoning")}
    values = {"worker": worker, "started_at": T0 + at, "state": state, "reason": "", "model": "m", "cost_usd": None}
    return {**zero, **values, **more}


def turn(number: int, worker: str, start: float, end: float | None) -> dict[str, Any]:
    return {
        "id": number,
        "worker": worker,
        "started_at": T0 + start,
        "ended_at": None if end is None else T0 + end,
    }


ROWS = [
    row(ONE, 5, input_tokens=1000, cached_tokens=600, output_tokens=50, reasoning_tokens=20, cost_usd=0.02),
    row(ONE, 25, "unmetered", input_tokens=10, cost_usd=0.01, model="big"),
    row(TWO, 3700, input_tokens=90, output_tokens=1, model="unheard <of>"),
    row(TWO, 3701, "failed"),
    row(ONE, 3800, "refused", reason="agensh_budget_spent team"),
    row(ONE, 3900, "refused", reason="agensh_budget_spent team"),
    row(TWO, 3850, "refused", reason="agensh_model_not_allowed"),
]
TURNS = [turn(1, ONE, 0, 10), turn(2, ONE, 20, None), turn(3, TWO, 3600, 3650)]


def counted(merges: int = 2) -> Any:
    counter = CostCounter(t0=T0, turns=TURNS, budget=0.05, worker_budget=1.0)
    for each in ROWS:
        counter.add(each)
    return counter.cost(merges)


def test_by_worker_model_hour_and_turn() -> None:
    value = counted().to_json()
    total = value["total"]
    assert (total["requests"], total["failed"], total["unmetered"], total["unpriced"]) == (4, 1, 1, 1)
    assert (total["input"], total["cached"], total["output"], total["reasoning"]) == (1100, 600, 51, 20)
    assert (total["cost_usd"], total["cache_share"]) == (0.03, round(600 / 1100, 4))
    assert {name: used["requests"] for name, used in value["workers"].items()} == {ONE: 2, TWO: 2}
    assert {name: used["input"] for name, used in value["models"].items()} == {"big": 10, "m": 1000, "unheard <of>": 90}
    assert [(used["hour"], used["requests"]) for used in value["hours"]] == [(0, 2), (1, 2)]
    assert [(used["turn"], used["input"]) for used in value["turns"]] == [(1, 1000), (2, 10)], "3700 is after turn 3"
    assert (value["per_merge_usd"], value["refused"]) == (0.015, 3)
    assert value["budget_stops"] == [{"worker": ONE, "at_s": 3800.0, "budget": "team", "refusals": 2}]
    json.dumps(value)


def test_nothing_merged_and_nothing_asked() -> None:
    assert counted(0).to_json()["per_merge_usd"] is None
    empty = CostCounter(t0=None, turns=()).cost(0).to_json()
    assert (empty["total"]["requests"], empty["total"]["cache_share"], empty["hours"]) == (0, None, [])


def test_the_report_takes_the_gateways_figures_and_says_who_was_stopped() -> None:
    cost = counted()
    whole = record(cost=cost, pulls=[pull(1, 10), pull(2, 20)])
    report = build_report(whole)
    assert report.tokens == {"input": 1100, "cached": 600, "output": 51, "reasoning": 20}
    assert report.cost_usd == 0.03
    assert report.to_json()["cost"]["total"]["requests"] == 4
    lines = dict(money(cost))
    assert lines["budget of the team"] == "$0.05, $0.03 spent; workers stopped: 1, the first at 1:03:20"
    assert lines["requests to the provider"] == "4, 1 failed, 1 unmetered, 1 of a model without a price, 3 refused"
    assert lines["cost per merged pull request"] == "$0.0150"
    page = render_html(whole)
    assert "Tokens and money" in page
    assert "unheard &lt;of&gt;" in page
    assert "Tokens and money" not in render_html(record())


def test_a_run_without_a_gateway_keeps_what_the_clis_said() -> None:
    report = build_report(record())
    assert report.cost is None
    assert report.to_json()["cost"] is None


@pytest.mark.parametrize("at", [0, 10, 15, 20, 1e9])
def test_a_request_belongs_to_the_turn_it_began_in(at: float) -> None:
    counter = CostCounter(t0=T0, turns=TURNS)
    counter.add(row(ONE, at))
    assert list(counter.cost(0).turns) == {0: [1], 10: [1], 15: [], 20: [2], 1e9: [2]}[at]
