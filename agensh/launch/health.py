"""What the node hosts of a run say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from agensh.errors import AgenshError
from agensh.rundir import RunDir, RunInfo


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
    unseen: dict[str, float]
    """How long the oldest message or entry has been waiting to be shown, in seconds; workers that have seen all are
    left out."""


class NodeSilent(AgenshError):
    """A node host does not say how it is."""


async def ask_nodes(run: RunDir, info: RunInfo, *, timeout: float = 5.0) -> list[dict[str, Any]]:
    """Return the `/status` of all node hosts of a run.

    NodeSilent when one does not answer within `timeout` seconds, or with something else: its database may be away.
    """
    headers = {"Authorization": f"Bearer {run.secrets().node_admin}"}
    async with httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as http:
        try:
            answers = [await http.get(f"{place.url}/status") for place in info.places]
            return [answer.raise_for_status().json() for answer in answers]
        except (httpx.HTTPError, ValueError) as error:
            raise NodeSilent(f"A node host does not answer ({error!r}); its log is below {run.logs}.") from error


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
        unseen={
            worker["worker"]: max(0.0, now - worker["oldest_unseen_at"])
            for worker in workers
            if worker.get("oldest_unseen_at") is not None
        },
    )
