"""Writing, unfolding and releasing single entries."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, Field

from agensh.entries import EntryType
from board_service.api.deps import BoardName, Caller, EntryOut, EntrySeq, Service, access, errors
from board_service.auth import Principal
from board_service.board import check_note, client_key
from board_service.errors import refuse
from board_service.service import BoardService, shown_entry

router = APIRouter(tags=["notes"])


class NoteIn(BaseModel):
    """A note as it is sent."""

    type: EntryType
    content: str = Field(description="One line: at most 100 characters, 300 for a PATCH_SUMMARY.")
    detail: str = Field(default="", description="At most 65536 bytes of UTF-8.")
    thread_id: str | None = Field(default=None, description="When given, it must be the token's owner.")


class OverlapOut(BaseModel):
    """An active claim of somebody else that looks alike."""

    label: str
    worker: str
    content: str
    score: float


class Admitted(BaseModel):
    """A note was written."""

    status: str = "admitted"
    reason: None = None
    gist_id: int
    label: str
    repeated: bool = Field(description="True when the key was known: this is the first entry, nothing was written.")
    overlaps: list[OverlapOut]


class EntryWithDetail(EntryOut):
    """An entry and its detail."""

    detail: str


class Released(BaseModel):
    """A claim was released."""

    status: str = "released"
    entry: EntryOut


@router.post(
    "/board/{board}/note",
    response_model=Admitted,
    responses=errors(413, 422, 507),
    openapi_extra=access("write")
    | {"requestBody": {"required": True, "content": {"application/json": {"schema": NoteIn.model_json_schema()}}}},
)
async def write(
    request: Request,
    board: BoardName,
    service: Service,
    caller: Caller,
    idempotency_key: Annotated[
        str | None, Header(description="The same key of the same worker answers with the first entry.")
    ] = None,
) -> dict[str, Any]:
    """Write a note. The author is the token's owner. Every mistake of the note is listed at once."""
    caller.may_write(board)
    return await admit(service, caller, board, idempotency_key, await request.body())


async def admit(
    service: BoardService, caller: Principal, board: str, idempotency_key: str | None, body: bytes
) -> dict[str, Any]:
    """Write the note in `body` for a caller who may write, and return the answer."""
    note = _json_object(body)
    thread_id = note.get("thread_id")
    if thread_id is not None and thread_id != caller.name:
        raise refuse(403, "thread_id", f"thread_id: {thread_id!a} is not {caller.name!r}, the owner of your token.")
    key = client_key(idempotency_key) or service.new_key()
    done = await service.write(board, check_note(note, caller.name, key))
    return {
        "status": "admitted",
        "reason": None,
        "gist_id": done.entry.seq,
        "label": done.entry.label,
        "repeated": done.repeated,
        "overlaps": [
            {
                "label": overlap.entry.label,
                "worker": overlap.entry.worker,
                "content": overlap.entry.content,
                "score": overlap.score,
            }
            for overlap in done.overlaps
        ],
    }


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise refuse(422, "not_json", "body: it is not JSON; send an object with type, content and detail.") from None
    if not isinstance(value, dict):
        raise refuse(422, "not_an_object", "body: it must be a JSON object with type, content and detail.")
    return value


@router.get(
    "/board/{board}/note/{label}",
    response_model=EntryWithDetail,
    responses=errors(404, 422),
    openapi_extra=access("read"),
)
async def unfold(board: BoardName, label: EntrySeq, service: Service, caller: Caller) -> dict[str, Any]:
    """Return an entry and its detail, also of expired and released claims."""
    caller.may_read(board)
    entry, detail = await service.unfold(board, label)
    return shown_entry(entry, service.clock.time()) | {"detail": detail}


@router.post(
    "/board/{board}/note/{label}/release",
    response_model=Released,
    responses=errors(404, 422, 507),
    openapi_extra=access("claimant"),
)
async def release(board: BoardName, label: EntrySeq, service: Service, caller: Caller) -> dict[str, Any]:
    """Release one's own claim; releasing it again changes nothing."""
    caller.may_write(board)
    entry = await service.release(board, label, caller.name)
    return {"status": "released", "entry": shown_entry(entry, service.clock.time())}
