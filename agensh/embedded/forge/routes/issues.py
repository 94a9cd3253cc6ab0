"""Issues (and pull requests seen as issues)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.shapes_base import parse_stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store import notifications, repos, users
from agensh.embedded.forge.store.database import Row, Tx, marks
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import add_event, close, issue_row

router = APIRouter(prefix="/api/v1")


class NewIssue(BaseModel):
    title: str = ""
    body: str | None = None
    assignee: str | None = None
    assignees: list[str] | None = None
    labels: list[int] | None = None
    closed: bool = False
    ref: str = ""


class IssueChange(BaseModel):
    title: str | None = None
    body: str | None = None
    state: str | None = None
    assignee: str | None = None
    assignees: list[str] | None = None
    ref: str | None = None
    content_version: int | None = None


def query_time(call: ApiCall, name: str) -> int | None:
    """A time of the query in whole seconds; 422 when it is none."""
    try:
        return parse_stamp(call.request.query_params.get(name), name)
    except ValueError as error:
        raise unprocessable(str(error)) from error


def _known_labels(tx: Tx, names: str) -> list[int]:
    """The labels that a comma-separated list names; an issue needs one of them, and unknown names are discarded."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return [row[0] for row in tx.all(f"SELECT id FROM labels WHERE name IN ({marks(wanted)})", *wanted)]


def _filters(call: ApiCall, tx: Tx, forced: list[tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
    query = call.request.query_params
    parts: list[tuple[str, list[Any]]] = list(forced)
    state = query.get("state", "open")
    if state != "all":
        parts.append(("i.closed = ?", [state == "closed"]))
    if query.get("type") in {"issues", "pulls"}:
        parts.append(("i.is_pull = ?", [query["type"] == "pulls"]))
    if words := query.get("q", "").strip().lower():
        parts.append(("(instr(lower(i.title), ?) > 0 OR instr(lower(i.body), ?) > 0)", [words, words]))
    if labels := _known_labels(tx, query.get("labels", "")):
        has = f"x.issue_id = i.id AND x.label_id IN ({marks(labels)})"
        parts.append((f"EXISTS (SELECT 1 FROM issue_labels x WHERE {has})", [*labels]))
    if (since := query_time(call, "since")) is not None:
        parts.append(("i.updated >= ?", [since]))
    if (before := query_time(call, "before")) is not None:
        parts.append(("i.updated <= ?", [before]))
    people = {
        "created_by": "i.poster_id = ?",
        "assigned_by": "EXISTS (SELECT 1 FROM issue_assignees a WHERE a.issue_id = i.id AND a.user_id = ?)",
        "mentioned_by": "EXISTS (SELECT 1 FROM mentions m WHERE m.issue_id = i.id AND m.user_id = ?)",
    }
    for key, sql in people.items():
        if person := query.get(key):
            parts.append((sql, [users.require(tx, person)["id"]]))
    mine = {"created": "created_by", "assigned": "assigned_by", "mentioned": "mentioned_by"}
    for key, other in mine.items():
        if call.flag(key):
            parts.append((people[other], [call.user["id"]]))
    where = " AND ".join(sql for sql, _ in parts) or "1"
    return where, [value for _, values in parts for value in values]


def _found(call: ApiCall, tx: Tx, forced: list[tuple[str, list[Any]]]) -> list[Json]:
    where, values = _filters(call, tx, forced)
    order = {
        "oldest": "i.created, i.id",
        "recentupdate": "i.updated DESC, i.id DESC",
        "leastupdate": "i.updated, i.id",
        "mostcomment": "i.comments DESC, i.id DESC",
        "leastcomment": "i.comments, i.id",
    }.get(call.request.query_params.get("sort", ""), "i.created DESC, i.id DESC")
    call.paged(tx.value(f"SELECT count(*) FROM issues i WHERE {where}", *values))
    rows = tx.all(
        f"SELECT i.* FROM issues i WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?", *values, call.limit, call.offset
    )
    shapes = call.shapes(tx)
    return [shapes.issue(row) for row in rows]


@router.get("/repos/issues/search")
async def search(call: ApiCall) -> list[Json]:
    """Issues of all repositories the caller may see."""

    def find(tx: Tx) -> list[Json]:
        seen = [
            row["id"] for row in tx.all("SELECT * FROM repos") if repos.mode_of(tx, call.user, row) is not Mode.NONE
        ]
        listed = f"i.repo_id IN ({', '.join(map(str, seen)) or 'NULL'})"
        return _found(call, tx, [(listed, [])])

    return await call.read(find)


@router.get("/repos/{owner}/{name}/issues")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """Issues and pull requests of a repository; `since` is inclusive and counts whole seconds."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: _found(call, tx, [("i.repo_id = ?", [repo["id"]])]))


@router.post("/repos/{owner}/{name}/issues", status_code=201)
async def create(call: ApiCall, owner: str, name: str, new: NewIssue) -> Json:
    """Open an issue."""
    repo, _ = await call.repo(owner, name)
    if repo["archived"]:
        raise ApiError(423, f"{owner}/{name} is archived")
    if not new.title.strip():
        raise unprocessable("[Title]: Required")
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        writer = repos.mode_of(tx, call.user, repo) >= Mode.WRITE
        issue = store.create(tx, now, repo, call.user, new.title, new.body or "", ref=new.ref)
        if writer:  # Gitea ignores labels and assignees of those who may not set them
            store.set_labels(tx, issue, new.labels or [])
            names = [*(new.assignees or []), *([new.assignee] if new.assignee else [])]
            assigned = store.set_assignees(tx, now, repo, issue, call.user, names)
        else:
            assigned = set()
        notifications.broadcast(tx, now, issue, call.user)
        others = notifications.mentioned(tx, issue, call.user, new.body or "") | (assigned - {call.user["id"]})
        notifications.notify(tx, now, issue, call.user, others)
        if new.closed:
            close(tx, now, issue, call.user)
        return call.shapes(tx).issue(issue_row(tx, issue["id"]))

    return await call.write(insert)


@router.get("/repos/{owner}/{name}/issues/{number}")
async def get(call: ApiCall, owner: str, name: str, number: int) -> Json:
    """An issue."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: call.shapes(tx).issue(store.require(tx, repo, number)))


@router.patch("/repos/{owner}/{name}/issues/{number}", status_code=201)
async def edit(call: ApiCall, owner: str, name: str, number: int, new: IssueChange) -> Json:
    """Change an issue; Gitea answers 201."""
    repo, _ = await call.repo(owner, name)
    return await call.write(lambda tx: call.shapes(tx).issue(apply_change(call, tx, repo, number, new)))


def apply_change(call: ApiCall, tx: Tx, repo: Row, number: int, new: IssueChange) -> Row:
    """Write the changes of an issue or pull request that its poster or a writer may make."""
    now = call.forge.now()
    issue = store.require(tx, repo, number)
    writer = repos.mode_of(tx, call.user, repo) >= Mode.WRITE
    if issue["poster_id"] != call.user["id"] and not writer:
        raise ApiError(403, "user should have permission to edit the issue")
    if new.content_version is not None and new.content_version != issue["content_version"]:
        raise ApiError(409, "content version mismatch")
    if new.title is not None and new.title != issue["title"]:
        if not new.title.strip():
            raise unprocessable("[Title]: Required")
        tx.update("issues", "id", issue["id"], title=new.title, updated=now)
        store.title_event(tx, now, issue, call.user, new.title)
    if new.body is not None and new.body != issue["body"]:
        version = issue["content_version"] + 1
        tx.update("issues", "id", issue["id"], body=new.body, content_version=version, updated=now)
        others = notifications.mentioned(tx, issue, call.user, new.body)
        notifications.notify(tx, now, issue, call.user, others)
    if new.ref is not None:
        tx.update("issues", "id", issue["id"], ref=new.ref, updated=now)
    if writer and (new.assignees is not None or new.assignee is not None):
        names = list(new.assignees or []) + ([new.assignee] if new.assignee else [])
        assigned = store.set_assignees(tx, now, repo, issue, call.user, names)
        notifications.notify(tx, now, issue, call.user, assigned - {call.user["id"]})
    if new.state is not None:
        _set_state(call, tx, now, issue_row(tx, issue["id"]), new.state)
    return issue_row(tx, issue["id"])


def _set_state(call: ApiCall, tx: Tx, now: int, issue: Row, state: str) -> None:
    if state not in {"open", "closed"}:
        raise unprocessable(f"unknown state: {state}")
    if state == "closed":
        close(tx, now, issue, call.user)
    elif issue["closed"]:
        if issue["is_pull"]:
            store.check_reopen(tx, issue)
        tx.update("issues", "id", issue["id"], closed=False, closed_at=None, updated=now)
        event = add_event(tx, now, issue, call.user, "reopen")
        notifications.broadcast(tx, now, issue, call.user, event)


@router.get("/repos/{owner}/{name}/issues/{number}/subscriptions")
async def subscribers(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """Those who watch the issue itself."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        issue = store.require(tx, repo, number)
        sql = "SELECT user_id FROM issue_watches WHERE issue_id = ? AND watching = 1 ORDER BY user_id"
        shapes = call.shapes(tx)
        return [shapes.user(row["user_id"]) for row in call.slice(tx.all(sql, issue["id"]))]

    return await call.read(find)


async def _set_watch(call: ApiCall, owner: str, name: str, number: int, user: str, watching: bool) -> None:
    repo, _ = await call.repo(owner, name)

    def save(tx: Tx) -> bool:
        issue, row = store.require(tx, repo, number), users.require(tx, user)
        if row["id"] != call.user["id"] and not call.user["is_admin"]:
            raise ApiError(403, f"{call.user['name']} is not permitted to change {user}'s subscription")
        have = tx.value("SELECT watching FROM issue_watches WHERE issue_id = ? AND user_id = ?", issue["id"], row["id"])
        tx.run(
            "INSERT INTO issue_watches (issue_id, user_id, watching) VALUES (?, ?, ?) "
            "ON CONFLICT (issue_id, user_id) DO UPDATE SET watching = excluded.watching",
            issue["id"], row["id"], watching,
        )  # fmt: skip
        return bool(have == watching)

    call.response.status_code = 200 if await call.write(save) else 201


@router.put("/repos/{owner}/{name}/issues/{number}/subscriptions/{user}")
async def watch(call: ApiCall, owner: str, name: str, number: int, user: str) -> None:
    """Watch one issue: 201, or 200 when that was so already."""
    await _set_watch(call, owner, name, number, user, True)


@router.delete("/repos/{owner}/{name}/issues/{number}/subscriptions/{user}")
async def unwatch(call: ApiCall, owner: str, name: str, number: int, user: str) -> None:
    """Hear no more of one issue, even as a participant."""
    await _set_watch(call, owner, name, number, user, False)


@router.delete("/repos/{owner}/{name}/issues/{number}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, number: int) -> None:
    """Delete an issue; repository administrators only, and not a pull request."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)

    def remove(tx: Tx) -> None:
        issue = store.require(tx, repo, number)
        if issue["is_pull"]:
            raise not_found()
        tx.run("DELETE FROM issues WHERE id = ?", issue["id"])

    await call.write(remove)
