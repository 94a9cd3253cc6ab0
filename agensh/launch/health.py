"""What a node host says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Health:
    """What the node host says of itself."""

    elapsed: float
    left: float
    workers: dict[str, str]
    """State by worker."""
    turns: int
    queued: int


def read_health(status: dict[str, Any], now: float) -> Health:
    """Read the node host's `/status` as it stands at `now` (epoch seconds)."""
    workers = status["workers"]
    return Health(
        elapsed=max(0.0, now - status["t0"]),
        left=max(0.0, status["deadline"] - now),
        workers={worker["worker"]: worker["state"] for worker in workers},
        turns=sum(worker["turns"] for worker in workers),
        queued=sum(worker["queued"] for worker in workers),
    )
