"""Labels of repositories and of issues."""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge.errors import not_found, unprocessable
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import add_event

router = APIRouter(prefix="/api/v1")


class LabelChange(BaseModel):
    name: str | None = None
    color: str | None = None
    description: str | None = None
    exclusive: bool | None = None
    is_archived: bool | None = None


class IssueLabels(BaseModel):
    labels: list[int | str] | None = None


def _columns(new: LabelChange) -> dict[str, Any]:
    columns = new.model_dump(exclude_none=True)
    if new.color is not None:
        color = new.color.removeprefix("#")
        if not re.fullmatch(r"[0-9a-fA-F]{6}|[0-9a-fA-F]{3}", color):
            raise unprocessable(f"color: {new.color!r} is not a colour such as #00aabb")
        columns["color"] = (color if len(color) == 6 else "".join(c * 2 for c in color)).lower()
    return columns


def _find(tx: Tx, repo: Row, label_id: int) -> Row:
    row = tx.one("SELECT * FROM labels WHERE id = ? AND repo_id = ?", label_id, repo["id"])
    if row is None:
        raise not_found()
    return row


@router.get("/repos/{owner}/{name}/labels")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """The repository's labels, by name."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        rows = tx.all("SELECT * FROM labels WHERE repo_id = ? ORDER BY name", repo["id"])
        shapes = call.shapes(tx)
        return [shapes.label(row) for row in call.slice(rows)]

    return await call.read(find)


@router.post("/repos/{owner}/{name}/labels", status_code=201)
async def create(call: ApiCall, owner: str, name: str, new: LabelChange) -> Json:
    """Create a label."""
    repo, _ = await call.repo(owner, name, Mode.WRITE)
    if not new.name or new.color is None:
        raise unprocessable("[Name]: Required" if not new.name else "[Color]: Required")
    columns = _columns(new)

    def insert(tx: Tx) -> Json:
        return call.shapes(tx).label(_find(tx, repo, tx.insert("labels", repo_id=repo["id"], **columns)))

    return await call.write(insert)


@router.get("/repos/{owner}/{name}/labels/{label_id}")
async def get(call: ApiCall, owner: str, name: str, label_id: int) -> Json:
    """A label."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: call.shapes(tx).label(_find(tx, repo, label_id)))


@router.patch("/repos/{owner}/{name}/labels/{label_id}")
async def edit(call: ApiCall, owner: str, name: str, label_id: int, new: LabelChange) -> Json:
    """Change a label."""
    repo, _ = await call.repo(owner, name, Mode.WRITE)
    columns = _columns(new)

    def save(tx: Tx) -> Json:
        _find(tx, repo, label_id)
        if columns:
            tx.update("labels", "id", label_id, **columns)
        return call.shapes(tx).label(_find(tx, repo, label_id))

    return await call.write(save)


@router.delete("/repos/{owner}/{name}/labels/{label_id}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, label_id: int) -> None:
    """Delete a label."""
    repo, _ = await call.repo(owner, name, Mode.WRITE)
    await call.write(lambda tx: tx.run("DELETE FROM labels WHERE id = ? AND repo_id = ?", label_id, repo["id"]))


@router.get("/repos/{owner}/{name}/issues/{number}/labels")
async def of_issue(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """An issue's labels."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: call.shapes(tx).labels(store.require(tx, repo, number)["id"]))


async def _set(call: ApiCall, owner: str, name: str, number: int, new: IssueLabels, *, replace: bool) -> list[Json]:
    repo, _ = await call.repo(owner, name, Mode.WRITE)

    def save(tx: Tx) -> list[Json]:
        issue = store.require(tx, repo, number)
        ids = []
        for label in new.labels or []:
            sql = "SELECT id FROM labels WHERE repo_id = ? AND name = ?"
            found = tx.value(sql, repo["id"], label) if isinstance(label, str) else label
            if found is not None:
                ids.append(found)
        before = {row[0] for row in tx.all("SELECT label_id FROM issue_labels WHERE issue_id = ?", issue["id"])}
        store.set_labels(tx, issue, ids, replace=replace)
        after = {row[0] for row in tx.all("SELECT label_id FROM issue_labels WHERE issue_id = ?", issue["id"])}
        _note(call, tx, issue, before ^ after)
        return call.shapes(tx).labels(issue["id"])

    return await call.write(save)


def _note(call: ApiCall, tx: Tx, issue: Row, changed: set[int]) -> None:
    now = call.forge.now()
    for label_id in sorted(changed):
        add_event(tx, now, issue, call.user, "label", details=f'{{"label": {label_id}}}')
    if changed:
        tx.update("issues", "id", issue["id"], updated=now)


@router.post("/repos/{owner}/{name}/issues/{number}/labels")
async def add(call: ApiCall, owner: str, name: str, number: int, new: IssueLabels) -> list[Json]:
    """Add labels, by id or name; nobody is notified."""
    return await _set(call, owner, name, number, new, replace=False)


@router.put("/repos/{owner}/{name}/issues/{number}/labels")
async def replace(call: ApiCall, owner: str, name: str, number: int, new: IssueLabels) -> list[Json]:
    """Replace an issue's labels."""
    return await _set(call, owner, name, number, new, replace=True)


@router.delete("/repos/{owner}/{name}/issues/{number}/labels/{label_id}", status_code=204)
async def remove(call: ApiCall, owner: str, name: str, number: int, label_id: int) -> None:
    """Take a label off an issue."""
    repo, _ = await call.repo(owner, name, Mode.WRITE)

    def save(tx: Tx) -> None:
        issue = store.require(tx, repo, number)
        if tx.run("DELETE FROM issue_labels WHERE issue_id = ? AND label_id = ?", issue["id"], label_id):
            _note(call, tx, issue, {label_id})

    await call.write(save)
