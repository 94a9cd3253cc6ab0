"""What the workers of a board do, as their node hosts tell it; a dashboard shows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from agensh.text import one_line
from board_service.api.deps import BoardName, Caller, Service, access, errors
from board_service.board import AGENT_NAME
from board_service.service import WorkerTold

router = APIRouter(tags=["workers"])

MOST = 1024  # workers in one report
REASON_CAP = 500  # code points
FORGOTTEN = 900.0  # seconds without a report after which a worker is no longer listed

Name = Annotated[str, Field(pattern=f"^{AGENT_NAME.pattern}$")]
State = Annotated[str, Field(pattern="^[a-z_]{1,20}$", description="waiting, starting, idle, busy, parked or stopped.")]


class WorkerIn(BaseModel):
    """One worker as its node host sees it."""

    model_config = ConfigDict(extra="forbid")

    worker: Name
    state: State
    reason: str = Field("", max_length=REASON_CAP, description="Why it is parked.")


class ReportIn(BaseModel):
    """The workers of one node host."""

    model_config = ConfigDict(extra="forbid")

    workers: list[WorkerIn] = Field(max_length=MOST)


class WorkerOut(BaseModel):
    """One worker; the time in milliseconds since the epoch."""

    worker: str
    state: str
    reason: str
    told_at: int


class WorkersOut(BaseModel):
    """All workers that were told of lately, by name."""

    board: str
    workers: list[WorkerOut]


@router.put("/board/{board}/workers", response_model=WorkersOut, responses=errors(422), openapi_extra=access("admin"))
async def tell(board: BoardName, report: ReportIn, service: Service, caller: Caller) -> dict[str, Any]:
    """Take in what some workers do; the others stay as they are. It is kept in memory only: tell it again."""
    caller.may_administer()
    now = service.clock.time()
    told = service.workers.setdefault(board, {})
    for each in report.workers:
        told[each.worker] = WorkerTold(each.worker, each.state, one_line(each.reason, REASON_CAP), round(now * 1000))
    return _listed(board, service)


@router.get("/board/{board}/workers", response_model=WorkersOut, responses=errors(422), openapi_extra=access("read"))
async def read(board: BoardName, service: Service, caller: Caller) -> dict[str, Any]:
    """Return what the workers do, as it was told last."""
    caller.may_read(board)
    return _listed(board, service)


def _listed(board: str, service: Service) -> dict[str, Any]:
    told = service.workers.get(board, {})
    oldest = (service.clock.time() - FORGOTTEN) * 1000
    for name in [name for name, each in told.items() if each.told_at < oldest]:
        del told[name]
    return {"board": board, "workers": [asdict(told[name]) for name in sorted(told)]}
