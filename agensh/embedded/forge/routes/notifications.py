"""Notification threads."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from agensh.embedded.forge.errors import ApiError, forbidden, not_found
from agensh.embedded.forge.routes.issues import query_time
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import notifications as store
from agensh.embedded.forge.store.database import Row, Tx

router = APIRouter(prefix="/api/v1")

STATUSES = {"unread", "read", "pinned"}


def _statuses(call: ApiCall, default: list[str]) -> list[str]:
    if call.flag("all"):
        return sorted(STATUSES)
    given = [part for text in call.request.query_params.getlist("status-types") for part in text.split(",") if part]
    return [status for status in given if status in STATUSES] or default


def _where(call: ApiCall, repo_id: int | None) -> tuple[str, list[object]]:
    where, values = "n.user_id = ?", [call.user["id"]]
    statuses = _statuses(call, ["unread", "pinned"])
    where += f" AND n.status IN ({', '.join('?' * len(statuses))})"
    values += statuses
    kinds = [part.lower() for text in call.request.query_params.getlist("subject-type") for part in text.split(",")]
    if kinds:
        wanted = {"issue": "0", "pull": "1"}
        where += f" AND i.is_pull IN ({', '.join(wanted[kind] for kind in kinds if kind in wanted) or 'NULL'})"
    # Both ends are inclusive and whole seconds: a client must overlap and deduplicate.
    if since := query_time(call, "since"):
        where += " AND n.updated >= ?"
        values.append(since)
    if before := query_time(call, "before"):
        where += " AND n.updated <= ?"
        values.append(before)
    if repo_id is not None:
        where += " AND n.repo_id = ?"
        values.append(repo_id)
    return where, values


async def _list(call: ApiCall, repo_id: int | None = None) -> list[Json]:
    where, values = _where(call, repo_id)

    def find(tx: Tx) -> list[Json]:
        source = f"FROM notifications n JOIN issues i ON i.id = n.issue_id WHERE {where}"
        call.paged(tx.value(f"SELECT count(*) {source}", *values))
        rows = tx.all(f"SELECT n.* {source} ORDER BY n.updated DESC LIMIT ? OFFSET ?", *values, call.limit, call.offset)
        shapes = call.shapes(tx)
        return [shapes.notification(row) for row in rows]

    return await call.read(find)


async def _mark(call: ApiCall, repo_id: int | None = None) -> JSONResponse:
    query = call.request.query_params
    until = query_time(call, "last_read_at")
    status = query.get("to-status") or "read"
    if status not in STATUSES:
        raise ApiError(400, f"to-status: {status!r} is not known; allowed are read, unread, pinned")
    statuses = _statuses(call, ["unread"])
    now = call.forge.now()

    def save(tx: Tx) -> list[Json]:
        where = f"user_id = ? AND status IN ({', '.join('?' * len(statuses))})"
        values: list[object] = [call.user["id"], *statuses]
        if until is not None:
            where += " AND updated <= ?"
            values.append(until)
        if repo_id is not None:
            where += " AND repo_id = ?"
            values.append(repo_id)
        rows = tx.all(f"SELECT * FROM notifications WHERE {where}", *values)
        for row in rows:
            store.mark(tx, now, call.user["id"], row, status)
        shapes = call.shapes(tx)
        return [shapes.notification(_thread(call, tx, row["id"])) for row in rows]

    return JSONResponse(await call.write(save), 205)


def _thread(call: ApiCall, tx: Tx, thread_id: int) -> Row:
    row = tx.one("SELECT * FROM notifications WHERE id = ?", thread_id)
    if row is None:
        raise not_found()
    if row["user_id"] != call.user["id"] and not call.user["is_admin"]:
        raise forbidden(f"only user itself and admin are allowed to read/change this thread {thread_id}")
    return row


@router.get("/notifications")
async def listing(call: ApiCall) -> list[Json]:
    """The caller's threads (unread and pinned unless asked otherwise), the latest first; equal times in any order."""
    return await _list(call)


@router.put("/notifications")
async def mark(call: ApiCall) -> JSONResponse:
    """Mark threads, up to and including `last_read_at`: 205 with those that were marked."""
    return await _mark(call)


@router.get("/notifications/new")
async def new(call: ApiCall) -> Json:
    """How many are unread."""
    return {"new": await call.read(lambda tx: store.unread(tx, call.user["id"]))}


@router.get("/notifications/threads/{thread_id}")
async def get(call: ApiCall, thread_id: int) -> Json:
    """One thread."""
    return await call.read(lambda tx: call.shapes(tx).notification(_thread(call, tx, thread_id)))


@router.patch("/notifications/threads/{thread_id}")
async def mark_one(call: ApiCall, thread_id: int) -> JSONResponse:
    """Mark one thread: 205 with it."""
    status = call.request.query_params.get("to-status") or "read"
    if status not in STATUSES:
        raise ApiError(400, f"to-status: {status!r} is not known; allowed are read, unread, pinned")
    now = call.forge.now()

    def save(tx: Tx) -> Json:
        row = _thread(call, tx, thread_id)
        store.mark(tx, now, row["user_id"], row, status)
        return call.shapes(tx).notification(_thread(call, tx, thread_id))

    return JSONResponse(await call.write(save), 205)


@router.get("/repos/{owner}/{name}/notifications")
async def of_repo(call: ApiCall, owner: str, name: str) -> list[Json]:
    """The caller's threads of one repository."""
    repo, _ = await call.repo(owner, name)
    return await _list(call, repo["id"])


@router.put("/repos/{owner}/{name}/notifications")
async def mark_repo(call: ApiCall, owner: str, name: str) -> JSONResponse:
    """Mark the threads of one repository."""
    repo, _ = await call.repo(owner, name)
    return await _mark(call, repo["id"])
