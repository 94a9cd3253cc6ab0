"""The budget's warnings: one look of a node host at the gateway for all its workers, and a control event each.

A worker hears once that 80 % of a budget are spent and once that 95 % are, whichever of its own and the team's comes
first; who is at 95 % when the host first looks hears only that. The events have a dedupe key each, so that a host that
is restarted repeats none. The refusal itself is the gateway's: this only tells of it in time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agensh.clock import Clock
from agensh.errors import AgenshError
from prompts import render
from router.events import Kind, NewEvent
from router.idle import control_event
from router.waiting import surely

LOOK_EVERY = 5.0  # seconds between two looks
WARNINGS = ((0.95, Kind.BUDGET_95), (0.80, Kind.BUDGET_80))
log = logging.getLogger(__name__)


class UsageSource(Protocol):
    """What is asked of the gateway."""

    async def usage(self) -> dict[str, Any]:
        """Return what the team and each worker have used."""
        ...


class WarnedQueue(Protocol):
    """What is asked of a worker's queue."""

    async def put(self, new: Sequence[NewEvent]) -> int:
        """Queue what is not known yet."""
        ...


@dataclass(frozen=True, slots=True)
class Spent:
    """A budget, and how much of it is gone."""

    whose: str
    spent: float
    limit: float

    @property
    def share(self) -> float:
        """The part that is spent; 0 without a budget."""
        return self.spent / self.limit if self.limit else 0.0


class BudgetWatch:
    """Warns the workers of one node host; `run` goes on until it is cancelled."""

    def __init__(self, source: UsageSource, queues: Mapping[str, WarnedQueue], clock: Clock) -> None:
        self._source = source
        self._queues = queues
        self._clock = clock
        self._told: dict[str, float] = {}
        """The share that a worker was warned of."""

    async def run(self) -> None:
        """Look, warn, wait, again."""
        while True:
            try:
                await self.look()
            except (AgenshError, LookupError, TypeError, ValueError) as error:
                # No answer, or none of a gateway's: a warning is not worth the host and its workers.
                reason = f"{type(error).__name__}: {error}"
                log.warning("the gateway does not tell what is spent", extra={"error": reason})
            await self._clock.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Ask once, and warn whoever is due. ServiceError when the gateway does not answer."""
        usage = await self._source.usage()
        team = Spent("the team", usage["team"]["spent_usd"], usage["team"]["budget_usd"])
        for worker, queue in self._queues.items():
            row = usage["workers"].get(worker, {})
            own = Spent("you alone", row.get("spent_usd", 0.0), row.get("budget_usd", 0.0))
            await self._warn(worker, queue, max(team, own, key=lambda spent: spent.share))

    async def _warn(self, worker: str, queue: WarnedQueue, most: Spent) -> None:
        due = next(((share, kind) for share, kind in WARNINGS if most.share >= share), None)
        if due is None or due[0] <= self._told.get(worker, 0.0):
            return
        share, kind = due
        words = {"spent": f"${most.spent:.2f}", "limit": f"${most.limit:.2f} for {most.whose}"}
        text = render(f"{kind}.md", **words).strip()
        event = control_event(kind, str(kind), self._clock.time(), text=text, **words)
        await surely(self._clock, lambda: queue.put([event]))
        self._told[worker] = share
