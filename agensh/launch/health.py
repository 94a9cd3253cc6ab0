"""What the node hosts of a run say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Health:
    """What the node hosts say of themselves, together."""

    elapsed: float
    left: float
    workers: dict[str, str]
    """State by worker."""
    turns: int
    queued: int
    parked: dict[str, str]
    """Why, by the workers that are parked."""


def read_health(answers: Sequence[dict[str, Any]], now: float) -> Health:
    """Read the `/status` of all node hosts of a run (at least one) as they stand at `now` (epoch seconds)."""
    workers = [worker for answer in answers for worker in answer["workers"]]
    return Health(
        elapsed=max(0.0, now - answers[0]["t0"]),
        left=max(0.0, answers[0]["deadline"] - now),
        workers={worker["worker"]: worker["state"] for worker in workers},
        turns=sum(worker["turns"] for worker in workers),
        queued=sum(worker["queued"] for worker in workers),
        parked={worker["worker"]: worker["reason"] for worker in workers if worker["state"] == "parked"},
    )
