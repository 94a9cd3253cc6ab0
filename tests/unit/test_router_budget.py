"""Warnings of a budget that is nearly spent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agensh.clock import SystemClock
from agensh.errors import ServiceError
from prompts import render
from router.budget import BudgetWatch
from router.desk import REMINDERS
from router.events import Kind, NewEvent, Priority
from tests.support.router_stage import until

ONE, TWO = "demo-worker1", "demo-worker2"


class Queue:
    """Remembers what was put."""

    def __init__(self) -> None:
        self.events: list[NewEvent] = []

    async def put(self, new: Sequence[NewEvent]) -> int:
        self.events += new
        return len(new)


class Source:
    """A gateway whose figures are set by hand."""

    def __init__(self) -> None:
        self.team = 0.0
        self.own = {ONE: 0.0, TWO: 0.0}
        self.away = False

    async def usage(self) -> dict[str, Any]:
        if self.away:
            raise ServiceError("gateway", 0, "away", retryable=True)
        rows = {name: {"spent_usd": spent, "budget_usd": 1.0} for name, spent in self.own.items()}
        return {"team": {"spent_usd": self.team, "budget_usd": 10.0}, "workers": rows}


@pytest.fixture
def stage() -> tuple[Source, dict[str, Queue], BudgetWatch]:
    source, queues = Source(), {ONE: Queue(), TWO: Queue()}
    return source, queues, BudgetWatch(source, queues, SystemClock())


async def test_an_answer_that_is_none_costs_one_look_and_not_the_host(stage, monkeypatch) -> None:
    source, queues, watch = stage
    monkeypatch.setattr("router.budget.LOOK_EVERY", 0.0)
    source.team = 9.0
    usual, strange = source.usage, [{}, {"team": None}, {"team": {"spent_usd": 1, "budget_usd": "x"}, "workers": {}}]

    async def usage() -> Any:
        return strange.pop(0) if strange else await usual()

    source.usage = usage
    watching = asyncio.create_task(watch.run())
    await until(lambda: bool(queues[TWO].events) or watching.done())
    assert not watching.done()
    watching.cancel()
    assert [event.kind for event in queues[ONE].events] == [Kind.BUDGET_80]


async def test_each_warning_comes_once_for_the_fuller_of_the_two_budgets(stage) -> None:
    source, queues, watch = stage
    source.team = 7.9
    await watch.look()
    source.own[ONE] = 0.8
    await watch.look()
    await watch.look()
    assert [event.kind for event in queues[ONE].events] == [Kind.BUDGET_80]
    assert queues[TWO].events == []
    first = queues[ONE].events[0]
    assert (first.dedupe_key, first.priority) == ("control:budget_80", Priority.CONTROL)
    assert first.body["text"].startswith("$0.80 of the budget of $1.00 for you alone are spent (80 %).")
    source.team = 9.6
    await watch.look()
    assert [event.kind for event in queues[ONE].events] == [Kind.BUDGET_80, Kind.BUDGET_95]
    assert [event.kind for event in queues[TWO].events] == [Kind.BUDGET_95], "who is at 95 % hears only that"
    assert queues[TWO].events[0].body["text"].startswith("$9.60 of the budget of $10.00 for the team are spent (95 %).")


async def test_a_gateway_that_is_away_and_one_that_knows_nobody_yet(stage) -> None:
    source, queues, watch = stage
    source.away = True
    with pytest.raises(ServiceError):
        await watch.look()
    source.away, source.own, source.team = False, {}, 8.0
    await watch.look()
    assert [len(queue.events) for queue in queues.values()] == [1, 1]


def test_both_warnings_reach_a_running_turn() -> None:
    assert {Kind.BUDGET_80, Kind.BUDGET_95} <= REMINDERS
    for kind in (Kind.BUDGET_80, Kind.BUDGET_95):
        assert render(f"{kind}.md", spent="$1.00", limit="$2.00").startswith("$1.00 of the budget of $2.00")
