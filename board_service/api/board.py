"""The listing and grep."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from agensh.entries import EntryType
from board_service.api.deps import BoardName, Caller, EntryOut, Service, access, errors
from board_service.board import grep_terms
from board_service.service import shown_entry

router = APIRouter(tags=["board"])

SEQ_MAX = 2**53
READ_LIMIT = 2000
GREP_LIMIT = 500


class Listing(BaseModel):
    """Entries, ascending."""

    board: str
    head: int = Field(description="Seq of the newest entry, 0 on an empty board.")
    entries: list[EntryOut]


class GrepResult(BaseModel):
    """Entries, newest first."""

    board: str
    q: str
    entries: list[EntryOut]
    more: bool
    next_before: int | None = Field(description="Send it as `before` for the next page; null on the last one.")


@router.get("/board/{board}", response_model=Listing, responses=errors(422), openapi_extra=access("read"))
async def read(
    board: BoardName,
    service: Service,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=READ_LIMIT)] = READ_LIMIT,
    after: Annotated[int | None, Query(ge=0, le=SEQ_MAX)] = None,
    type: Annotated[EntryType | None, Query()] = None,
) -> dict[str, Any]:
    """Return the newest entries, or the first after `after`; without expired and released claims."""
    caller.may_read(board)
    entries, head = await service.read(board, limit, after, type)
    now = service.clock.time()
    return {"board": board, "head": head, "entries": [shown_entry(entry, now) for entry in entries]}


@router.get("/board/{board}/grep", response_model=GrepResult, responses=errors(422), openapi_extra=access("read"))
async def grep(
    board: BoardName,
    service: Service,
    caller: Caller,
    q: Annotated[str, Query(description="`,` is OR, `&` is AND (it binds tighter); else literal, any case.")] = "",
    before: Annotated[int | None, Query(ge=1, le=SEQ_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=GREP_LIMIT)] = 100,
) -> dict[str, Any]:
    """Search content and worker of all entries ever written, newest first."""
    caller.may_read(board)
    found = await service.store.grep(board, grep_terms(q), before, limit + 1)
    page, more = found[:limit], len(found) > limit
    now = service.clock.time()
    return {
        "board": board,
        "q": q,
        "entries": [shown_entry(entry, now) for entry in page],
        "more": more,
        "next_before": page[-1].seq if more else None,
    }
