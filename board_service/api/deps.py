"""What routes share: the service, the caller, checked names, and the documented error shape."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import BaseModel

from board_service.auth import Principal
from board_service.board import AGENT_NAME, BOARD_NAME, LABEL, check_agent_name, check_board_name, parse_label
from board_service.service import BoardService

ACCESS = {
    "open": "open: needs no token",
    "anyone": "anyone: needs a valid token",
    "read": "read: workers and readers of the board, admins",
    "write": "write: workers of the board, admins; the author is the token's owner",
    "claimant": "claimant: the worker that wrote the claim",
    "agent": "agent: the agent itself, admins",
    "monitor": "monitor: readers, admins",
    "admin": "admin: admins",
}
"""Who may call a route, as its description says it (`x-access`)."""


class ErrorItem(BaseModel):
    """One thing that is wrong."""

    code: str
    message: str


class ErrorBody(BaseModel):
    """Every error of the board has this shape; `reason` is all messages in one text."""

    status: str
    reason: str
    errors: list[ErrorItem]


class EntryOut(BaseModel):
    """An entry without its detail; times in milliseconds since the epoch."""

    seq: int
    label: str
    worker: str
    type: str
    content: str
    created_at: int
    expires_at: int | None
    has_detail: bool
    active: bool


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that may answer with these errors, besides those every route has."""
    return {status: {"model": ErrorBody} for status in sorted({401, 403, 408, 413, 422, 429, 431, 503, *statuses})}


def access(who: str) -> dict[str, Any]:
    """Return the `openapi_extra` that says who may call a route: a word of `ACCESS`."""
    return {"x-access": ACCESS[who]}


def service(request: Request) -> BoardService:
    """Return the service of this application."""
    found: BoardService = request.app.state.service
    return found


def caller(request: Request) -> Principal:
    """Return who sent the request; the authentication middleware has found out."""
    found: Principal = request.state.principal
    return found


def _pattern(form: re.Pattern[str]) -> dict[str, Any]:
    """Describe a form that the board checks itself, for the sake of its own sentences."""
    return {"pattern": f"^{form.pattern}$"}


def board_name(
    board: Annotated[str, Path(description="Name of the board.", json_schema_extra=_pattern(BOARD_NAME))],
) -> str:
    """Return the path's board name, checked."""
    return check_board_name(board)


def agent_name(
    agent: Annotated[str, Path(description="Name of the agent.", json_schema_extra=_pattern(AGENT_NAME))],
) -> str:
    """Return the path's agent name, checked."""
    return check_agent_name(agent)


def entry_seq(label: Annotated[str, Path(description="Label of the entry.", json_schema_extra=_pattern(LABEL))]) -> int:
    """Return the seq of the path's label, checked."""
    return parse_label(label)


Service = Annotated[BoardService, Depends(service)]
Caller = Annotated[Principal, Depends(caller)]
BoardName = Annotated[str, Depends(board_name)]
AgentName = Annotated[str, Depends(agent_name)]
EntrySeq = Annotated[int, Depends(entry_seq)]
