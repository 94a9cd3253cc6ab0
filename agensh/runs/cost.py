"""What a run used and paid, counted from the gateway's requests: in all, by worker, model, hour and turn.

The gateway knows no turns; a request belongs to the turn of its worker in which it began. Requests are read one by one
and not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Row = Mapping[str, Any]

BUDGET_SPENT = "agensh_budget_spent"
HOUR = 3600.0  # seconds
_TOKENS = ("input", "cached", "cache_write", "output", "reasoning")


@dataclass(slots=True)
class Used:
    """Requests that reached the provider, their tokens and what they cost."""

    requests: int = 0
    failed: int = 0
    """Answered with an error."""
    unmetered: int = 0
    """Cut, or answered without usage: their tokens are not, or not all, among these."""
    unpriced: int = 0
    """With tokens of a model that has no price."""
    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost_usd: float = 0.0

    @property
    def cache_share(self) -> float | None:
        """Part of the input that came from the provider's cache; None without input."""
        return self.cached / self.input if self.input else None

    def add(self, row: Row) -> None:
        """Count one request."""
        self.requests += 1
        self.failed += row["state"] == "failed"
        self.unmetered += row["state"] in {"unmetered", "open"}
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + int(row[f"{name}_tokens"]))
        if row["cost_usd"] is not None:
            self.cost_usd += float(row["cost_usd"])
        elif row["input_tokens"] or row["output_tokens"]:
            self.unpriced += 1

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        value = {each.name: getattr(self, each.name) for each in fields(self)}
        share = self.cache_share
        return value | {
            "cost_usd": round(self.cost_usd, 6),
            "cache_share": None if share is None else round(share, 4),
        }


@dataclass(frozen=True, slots=True)
class Stop:
    """A worker that was refused because a budget was spent."""

    worker: str
    at_s: float
    """Seconds since t0 of the first refusal."""
    budget: str
    """`team` or `worker`."""
    refusals: int


@dataclass(slots=True)
class Cost:
    """Tokens and money of a run."""

    budget_usd: float = 0.0
    worker_budget_usd: float = 0.0
    total: Used = field(default_factory=Used)
    workers: dict[str, Used] = field(default_factory=dict)
    models: dict[str, Used] = field(default_factory=dict)
    hours: dict[int, Used] = field(default_factory=dict)
    """By hour since t0; 0 is the first."""
    turns: dict[int, Used] = field(default_factory=dict)
    """By the number of the turn; requests between two turns are in none."""
    refused: int = 0
    """By the gateway itself."""
    stops: list[Stop] = field(default_factory=list)
    merges: int = 0

    @property
    def per_merge_usd(self) -> float | None:
        """Dollars per merged pull request; None when none was merged."""
        return self.total.cost_usd / self.merges if self.merges else None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        per_merge = self.per_merge_usd
        return {
            "budget_usd": self.budget_usd,
            "worker_budget_usd": self.worker_budget_usd,
            "total": self.total.to_json(),
            "per_merge_usd": None if per_merge is None else round(per_merge, 6),
            "workers": {name: used.to_json() for name, used in sorted(self.workers.items())},
            "models": {name: used.to_json() for name, used in sorted(self.models.items())},
            "hours": [{"hour": hour} | used.to_json() for hour, used in sorted(self.hours.items())],
            "turns": [{"turn": turn} | used.to_json() for turn, used in sorted(self.turns.items())],
            "refused": self.refused,
            "budget_stops": [
                {"worker": stop.worker, "at_s": stop.at_s, "budget": stop.budget, "refusals": stop.refusals}
                for stop in self.stops
            ],
        }


class CostCounter:
    """Counts requests one after the other."""

    def __init__(
        self, *, t0: float | None, turns: Iterable[Row], budget: float = 0.0, worker_budget: float = 0.0
    ) -> None:
        self._cost = Cost(budget, worker_budget)
        self._t0 = t0
        self._turns: dict[str, list[tuple[float, float, int]]] = {}
        for turn in turns:
            ended = turn["ended_at"]
            span = (float(turn["started_at"]), float("inf") if ended is None else float(ended), int(turn["id"]))
            self._turns.setdefault(turn["worker"], []).append(span)
        for spans in self._turns.values():
            spans.sort()
        self._stops: dict[str, Stop] = {}

    def add(self, row: Row) -> None:
        """Count one row of the gateway's requests."""
        cost, worker, began = self._cost, str(row["worker"]), float(row["started_at"])
        if self._t0 is None:
            self._t0 = began
        if row["state"] == "refused":
            cost.refused += 1
            self._stopped(worker, began, str(row["reason"]))
            return
        hour = int(max(0.0, began - self._t0) // HOUR)
        turn = self._turn(worker, began)
        places = [cost.total, _at(cost.workers, worker), _at(cost.models, str(row["model"])), _at(cost.hours, hour)]
        if turn is not None:
            places.append(_at(cost.turns, turn))
        for used in places:
            used.add(row)

    def cost(self, merges: int) -> Cost:
        """Return what was counted, for a run with that many merged pull requests."""
        self._cost.merges = merges
        self._cost.stops = sorted(self._stops.values(), key=lambda stop: (stop.at_s, stop.worker))
        return self._cost

    def _turn(self, worker: str, at: float) -> int | None:
        spans = self._turns.get(worker, [])
        index = bisect_right(spans, at, key=lambda span: span[0]) - 1
        if index < 0 or at > spans[index][1]:
            return None
        return spans[index][2]

    def _stopped(self, worker: str, at: float, reason: str) -> None:
        code, _, whose = reason.partition(" ")
        if code != BUDGET_SPENT:
            return
        assert self._t0 is not None, "it is set with the first row"
        known = self._stops.get(worker)
        first = Stop(worker, round(max(0.0, at - self._t0), 1), whose, 0) if known is None else known
        self._stops[worker] = Stop(worker, first.at_s, first.budget, first.refusals + 1)


def _at(table: dict[Any, Used], key: Any) -> Used:
    found = table.get(key)
    if found is None:
        found = table[key] = Used()
    return found


def rows_of(cost: Cost) -> Sequence[tuple[str, Sequence[tuple[str, Used]]]]:
    """Return the tables of a cost as a person reads them: (what, rows of (label, used))."""
    return [
        ("worker", sorted(cost.workers.items())),
        ("model", [(name or "(none)", used) for name, used in sorted(cost.models.items())]),
        ("hour", [(f"{hour}:00 to {hour + 1}:00", used) for hour, used in sorted(cost.hours.items())]),
    ]
