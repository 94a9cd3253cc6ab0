"""Comments and the timeline of issues and pull requests."""

from __future__ import annotations

import json

from fastapi import APIRouter, Response
from pydantic import BaseModel

from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.routes.issues import query_time
from agensh.embedded.forge.shapes import Shapes
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store import notifications, repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import issue_row

router = APIRouter(prefix="/api/v1")


class Body(BaseModel):
    body: str = ""


def _window(call: ApiCall, column: str = "updated") -> tuple[str, list[int]]:
    """The condition of `since` and `before`: whole seconds, both inclusive."""
    since, before = query_time(call, "since"), query_time(call, "before")
    sql, values = "", []
    if since is not None:
        sql += f" AND {column} >= ?"
        values.append(since)
    if before is not None:
        sql += f" AND {column} <= ?"
        values.append(before)
    return sql, values


@router.get("/repos/{owner}/{name}/issues/{number}/comments")
async def of_issue(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """All comments of an issue, oldest first, not paged (as in Gitea)."""
    repo, _ = await call.repo(owner, name)
    window, values = _window(call)

    def find(tx: Tx) -> list[Json]:
        issue = store.require(tx, repo, number)
        sql = f"SELECT * FROM comments WHERE issue_id = ? AND kind = 'comment'{window} ORDER BY created, id"
        rows = tx.all(sql, issue["id"], *values)
        call.response.headers["X-Total-Count"] = str(len(rows))
        shapes = call.shapes(tx)
        return [shapes.comment(row, issue) for row in rows]

    return await call.read(find)


@router.get("/repos/{owner}/{name}/issues/comments")
async def of_repo(call: ApiCall, owner: str, name: str) -> list[Json]:
    """All comments of a repository, oldest first, paged."""
    repo, _ = await call.repo(owner, name)
    window, values = _window(call, "c.updated")

    def find(tx: Tx) -> list[Json]:
        source = (
            f"FROM comments c JOIN issues i ON i.id = c.issue_id WHERE i.repo_id = ? AND c.kind = 'comment'{window}"
        )
        call.paged(tx.value(f"SELECT count(*) {source}", repo["id"], *values))
        rows = tx.all(
            f"SELECT c.* {source} ORDER BY c.created, c.id LIMIT ? OFFSET ?",
            repo["id"],
            *values,
            call.limit,
            call.offset,
        )
        shapes = call.shapes(tx)
        return [shapes.comment(row, issue_row(tx, row["issue_id"])) for row in rows]

    return await call.read(find)


@router.post("/repos/{owner}/{name}/issues/{number}/comments", status_code=201)
async def create(call: ApiCall, owner: str, name: str, number: int, new: Body) -> Json:
    """Comment; participants, watchers and those who are mentioned hear of it."""
    repo, _ = await call.repo(owner, name)
    if not new.body:
        raise unprocessable("[Body]: Required")
    if repo["archived"]:
        raise ApiError(423, f"{owner}/{name} is archived")
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        issue = store.require(tx, repo, number)
        if issue["is_locked"] and repos.mode_of(tx, call.user, repo) < Mode.WRITE:
            raise forbidden("the issue is locked")
        row = _find(tx, repo, add_comment(tx, now, issue, call.user, new.body))[0]
        return call.shapes(tx).comment(row, issue)

    return await call.write(insert)


def add_comment(tx: Tx, now: int, issue: Row, user: Row, body: str) -> int:
    """Insert a comment with its notifications and return its id."""
    comment_id = tx.insert(
        "comments", issue_id=issue["id"], poster_id=user["id"], kind="comment", body=body, created=now, updated=now
    )
    tx.run("UPDATE issues SET comments = comments + 1, updated = ? WHERE id = ?", now, issue["id"])
    notifications.broadcast(tx, now, issue, user, comment_id)
    others = notifications.mentioned(tx, issue, user, body)
    notifications.notify(tx, now, issue, user, others, comment_id)
    return comment_id


def _find(tx: Tx, repo: Row, comment_id: int) -> tuple[Row, Row]:
    row = tx.one(
        "SELECT c.* FROM comments c JOIN issues i ON i.id = c.issue_id "
        "WHERE c.id = ? AND i.repo_id = ? AND c.kind = 'comment'",
        comment_id, repo["id"],
    )  # fmt: skip
    if row is None:
        raise not_found()
    return row, issue_row(tx, row["issue_id"])


@router.get("/repos/{owner}/{name}/issues/comments/{comment_id}")
async def get(call: ApiCall, owner: str, name: str, comment_id: int) -> Json:
    """A comment."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: call.shapes(tx).comment(*_find(tx, repo, comment_id)))


def _own(call: ApiCall, tx: Tx, repo: Row, comment_id: int) -> tuple[Row, Row]:
    row, issue = _find(tx, repo, comment_id)
    if row["poster_id"] != call.user["id"] and repos.mode_of(tx, call.user, repo) < Mode.WRITE:
        raise forbidden("user should be the poster or be able to write")
    return row, issue


@router.patch("/repos/{owner}/{name}/issues/comments/{comment_id}")
async def edit(call: ApiCall, owner: str, name: str, comment_id: int, new: Body) -> Json:
    """Change a comment; who is newly mentioned hears of it."""
    repo, _ = await call.repo(owner, name)
    now = call.forge.now()

    def save(tx: Tx) -> Json:
        row, issue = _own(call, tx, repo, comment_id)
        tx.update("comments", "id", comment_id, body=new.body, updated=now)
        before = notifications.mentioned(tx, issue, call.user, row["body"])
        others = notifications.mentioned(tx, issue, call.user, new.body) - before
        notifications.notify(tx, now, issue, call.user, others, comment_id)
        return call.shapes(tx).comment(*_find(tx, repo, comment_id))

    return await call.write(save)


@router.delete("/repos/{owner}/{name}/issues/comments/{comment_id}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, comment_id: int) -> Response:
    """Delete a comment."""
    repo, _ = await call.repo(owner, name)

    def remove(tx: Tx) -> None:
        _, issue = _own(call, tx, repo, comment_id)
        tx.run("DELETE FROM comments WHERE id = ?", comment_id)
        tx.run("UPDATE issues SET comments = comments - 1 WHERE id = ?", issue["id"])

    await call.write(remove)
    return Response(status_code=204)


@router.get("/repos/{owner}/{name}/issues/{number}/timeline")
async def timeline(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """Everything that happened to an issue, oldest first."""
    repo, _ = await call.repo(owner, name)
    window, values = _window(call)

    def find(tx: Tx) -> list[Json]:
        issue = store.require(tx, repo, number)
        call.paged(tx.value(f"SELECT count(*) FROM comments WHERE issue_id = ?{window}", issue["id"], *values))
        rows = tx.all(
            f"SELECT * FROM comments WHERE issue_id = ?{window} ORDER BY created, id LIMIT ? OFFSET ?",
            issue["id"], *values, call.limit, call.offset,
        )  # fmt: skip
        shapes = call.shapes(tx)
        return [_event(tx, shapes, row, issue) for row in rows]

    return await call.read(find)


def _event(tx: Tx, shapes: Shapes, row: Row, issue: Row) -> Json:
    details = json.loads(row["details"])
    label = tx.one("SELECT * FROM labels WHERE id = ?", details.get("label", 0))
    body = row["body"]
    if row["kind"] == "pull_push":
        body = json.dumps(
            {"is_force_push": details.get("forced", False), "commit_ids": [details["old"], details["new"]]}
        )
    shape = shapes.comment(row, issue) | {
        "type": row["kind"],
        "body": body,
        "old_project_id": 0,
        "project_id": 0,
        "old_milestone": None,
        "milestone": None,
        "tracked_time": None,
        "old_title": details.get("old", "") if row["kind"] == "change_title" else "",
        "new_title": details.get("new", "") if row["kind"] == "change_title" else "",
        "old_ref": "",
        "new_ref": "",
        "ref_issue": None,
        "ref_comment": None,
        "ref_action": "",
        "ref_commit_sha": details.get("sha", ""),
        "review_id": row["review_id"] or 0,
        "label": None if label is None else shapes.label(label),
        "assignee": shapes.user(details["assignee"]) if "assignee" in details else None,
        "assignee_team": None,
        "removed_assignee": bool(details.get("removed", False)),
        "resolve_doer": None,
        "dependent_issue": None,
    }
    del shape["assets"], shape["original_author"], shape["original_author_id"]
    return shape
