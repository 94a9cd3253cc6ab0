"""Commit statuses."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge.errors import not_found, unprocessable
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import statuses as store
from agensh.embedded.forge.store.database import Tx
from agensh.embedded.forge.store.repos import Mode

router = APIRouter(prefix="/api/v1")


class NewStatus(BaseModel):
    state: str = ""
    context: str = ""
    description: str = ""
    target_url: str = ""


@router.post("/repos/{owner}/{name}/statuses/{sha:path}", status_code=201)
async def create(call: ApiCall, owner: str, name: str, sha: str, new: NewStatus) -> Json:
    """Say how a commit fares."""
    repo, path = await call.repo(owner, name, Mode.WRITE)
    commit = await call.forge.git.resolve(path, sha)
    if commit is None:
        raise not_found()
    if new.state not in store.STATES:
        raise unprocessable(f"state: {new.state!r} is not known; allowed are {', '.join(store.STATES)}")
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        status_id = tx.insert(
            "statuses", repo_id=repo["id"], sha=commit, state=new.state, context=new.context or "default",
            description=new.description, target_url=new.target_url, creator_id=call.user["id"],
            created=now, updated=now,
        )  # fmt: skip
        row = tx.one("SELECT * FROM statuses WHERE id = ?", status_id)
        assert row is not None
        return call.shapes(tx).status(row)

    return await call.write(insert)


@router.get("/repos/{owner}/{name}/statuses/{sha:path}")
@router.get("/repos/{owner}/{name}/commits/{sha:path}/statuses")
async def listing(call: ApiCall, owner: str, name: str, sha: str) -> list[Json]:
    """All statuses of a commit, newest first."""
    repo, path = await call.repo(owner, name)
    commit = await call.forge.git.resolve(path, sha)
    if commit is None:
        raise not_found()
    state = call.request.query_params.get("state", "")

    def find(tx: Tx) -> list[Json]:
        sql = "SELECT * FROM statuses WHERE repo_id = ? AND sha = ? AND (? = '' OR state = ?) ORDER BY id DESC"
        shapes = call.shapes(tx)
        return [shapes.status(row) for row in call.slice(tx.all(sql, repo["id"], commit, state, state))]

    return await call.read(find)


@router.get("/repos/{owner}/{name}/commits/{ref:path}/status")
async def combined(call: ApiCall, owner: str, name: str, ref: str) -> Json:
    """The newest status of each context, and what they say together."""
    repo, path = await call.repo(owner, name)
    commit = await call.forge.git.resolve(path, ref)
    if commit is None:
        raise not_found()

    def find(tx: Tx) -> Json:
        rows = store.latest(tx, repo["id"], commit)
        shapes = call.shapes(tx)
        api = shapes.api(repo["id"])
        return {
            "state": store.combined(rows) if rows else "",
            "sha": commit,
            "total_count": len(rows),
            "statuses": [shapes.status(row) for row in rows] or None,
            "repository": shapes.repo(repo["id"]),
            "commit_url": f"{api}/commits/{commit}" if rows else "",
            "url": f"{api}/commits/{commit}/status" if rows else "",
        }

    return await call.read(find)
