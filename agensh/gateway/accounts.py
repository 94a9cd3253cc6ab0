"""What has been spent, and whether a worker may go on: in memory, from the ledger's sums at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agensh.gateway.ledger import Total
from agensh.gateway.usage import Tokens
from agensh.gateway.wires import Refusal

WARN_AT = (0.8, 0.95)


class Accounts:
    """Spending of the team and of each worker, against their budgets in US dollars (0: none)."""

    def __init__(self, budget: float, worker_budget: float, totals: Mapping[str, Total] | None = None) -> None:
        self.budget = budget
        self.worker_budget = worker_budget
        self._totals = dict(totals or {})
        self._spent = sum(total.spent_usd for total in self._totals.values())
        self._stopped: set[str] = set()

    def check(self, worker: str) -> None:
        """Refusal (402) when the team's or the worker's budget is spent."""
        own = self._totals.get(worker, Total()).spent_usd
        for whose, spent, budget in (("team", self._spent, self.budget), ("worker", own, self.worker_budget)):
            if budget and spent >= budget:
                self._stopped.add(worker)
                raise Refusal(
                    402,
                    "agensh_budget_spent",
                    f"agensh_budget_spent: the {whose}'s budget of {dollars(budget)} is spent ({dollars(spent)}); "
                    "no further request is answered. Stop here.",
                    reason=f"agensh_budget_spent {whose}",
                )

    def add(self, worker: str, tokens: Tokens, cost: float | None) -> None:
        """Count one request that was sent to the provider."""
        total = self._totals.get(worker, Total())
        self._totals[worker] = Total(total.requests + 1, total.tokens + tokens, total.spent_usd + (cost or 0.0))
        self._spent += cost or 0.0

    def usage(self, workers: set[str]) -> dict[str, Any]:
        """Return what `GET /usage` answers, with a row for everybody who has a key or has asked for something."""
        return {
            "team": {
                "spent_usd": round(self._spent, 6),
                "budget_usd": self.budget,
                "share": _share(self._spent, self.budget),
            },
            "workers": {name: self._row(name) for name in sorted(workers | set(self._totals))},
        }

    def _row(self, worker: str) -> dict[str, Any]:
        total = self._totals.get(worker, Total())
        tokens = total.tokens
        return {
            "requests": total.requests,
            "input_tokens": tokens.input,
            "cached_tokens": tokens.cached,
            "output_tokens": tokens.output,
            "reasoning_tokens": tokens.reasoning,
            "spent_usd": round(total.spent_usd, 6),
            "budget_usd": self.worker_budget,
            "share": _share(total.spent_usd, self.worker_budget),
            "stopped": worker in self._stopped,
        }


def _share(spent: float, budget: float) -> float:
    return round(spent / budget, 4) if budget else 0.0


def dollars(amount: float) -> str:
    """Return an amount for a reader: cents, and more digits where cents would say nothing."""
    return f"${amount:.2f}" if amount >= 0.1 or abs(amount - round(amount, 2)) < 5e-7 else f"${amount:.4f}"
