"""What an agent has not seen."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from board_service.api.board import SEQ_MAX
from board_service.api.deps import AgentName, Caller, Service, access, errors
from board_service.auth import Role
from board_service.board import check_board_name
from board_service.errors import refuse

router = APIRouter(tags=["pending"])

DEFAULT_BOARD = "main"


class NoticeOut(BaseModel):
    """One line."""

    id: str
    text: str


class PendingOut(BaseModel):
    """What others wrote since the last acknowledgement."""

    agent: str
    notices: list[NoticeOut]
    cursor: int = Field(description="Send it as `ack` once the notices were seen.")


@router.get("/pending/{agent}", response_model=PendingOut, responses=errors(422, 507), openapi_extra=access("agent"))
async def pending(
    agent: AgentName,
    service: Service,
    caller: Caller,
    ack: Annotated[int | None, Query(ge=0, le=SEQ_MAX, description="Cursor of an answer that was seen.")] = None,
    board: Annotated[str | None, Query(description="For admins; others have the board of their token.")] = None,
) -> dict[str, Any]:
    """Return what others wrote, the most pressing first, again and again until it is acknowledged."""
    if caller.role is not Role.ADMIN and caller.name != agent:
        raise refuse(403, "other_agent", f"agent: you are {caller.name!r} and may not read what {agent!r} has pending.")
    name = check_board_name(board or caller.board or DEFAULT_BOARD)
    caller.may_read(name)
    found = await service.pending(name, agent, ack)
    return {
        "agent": agent,
        "notices": [{"id": notice.id, "text": notice.text} for notice in found.notices],
        "cursor": found.cursor,
    }
