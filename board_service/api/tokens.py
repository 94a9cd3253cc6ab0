"""Tokens: admins make and revoke them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from board_service.api.deps import Caller, ErrorBody, Service, access, errors
from board_service.auth import Role
from board_service.board import check_agent_name, check_board_name
from board_service.errors import refuse

router = APIRouter(tags=["tokens"])


class TokenIn(BaseModel):
    """Whose token, for what."""

    model_config = ConfigDict(extra="forbid")

    worker: str
    board: str = "main"
    role: Role = Role.WORKER


class TokenOut(BaseModel):
    """A new token; it is shown this once."""

    worker: str
    board: str
    role: Role
    token: str


class Owner(BaseModel):
    """Whose a token is, and what for; an admin's has no board."""

    worker: str
    board: str
    role: Role


class Revoked(BaseModel):
    """How many tokens were revoked."""

    worker: str
    revoked: int


@router.post(
    "/tokens", response_model=TokenOut, status_code=201, responses=errors(422, 507), openapi_extra=access("admin")
)
async def create(wanted: TokenIn, service: Service, caller: Caller) -> dict[str, Any]:
    """Make a token. A worker may have several; all of them end with its revocation."""
    caller.may_administer()
    worker, board = check_agent_name(wanted.worker), check_board_name(wanted.board)
    token = await service.tokens.create(worker, wanted.role, board, service.clock.time())
    board = "" if wanted.role is Role.ADMIN else board
    return {"worker": worker, "board": board, "role": wanted.role, "token": token}


@router.get("/tokens/self", response_model=Owner, responses=errors(), openapi_extra=access("anyone"))
async def own(caller: Caller) -> dict[str, Any]:
    """Say whose the token of this request is."""
    return {"worker": caller.name, "board": caller.board or "", "role": caller.role}


@router.delete(
    "/tokens/{worker}",
    response_model=Revoked,
    responses=errors(422, 507) | {404: {"model": ErrorBody}},
    openapi_extra=access("admin"),
)
async def revoke(
    worker: str,
    service: Service,
    caller: Caller,
    board: Annotated[str | None, Query(description="Only the tokens for this board; else all.")] = None,
) -> dict[str, Any]:
    """Revoke a worker's tokens."""
    caller.may_administer()
    removed = await service.tokens.revoke(check_agent_name(worker), board)
    if not removed:
        raise refuse(404, "no_token", f"worker: {worker!r} has no token.")
    return {"worker": worker, "revoked": removed}
