"""Repositories, collaborators and watching."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from agensh.embedded.forge import http_backend
from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.files import Change, write_files
from agensh.embedded.forge.git import branch_tip
from agensh.embedded.forge.objects import ZERO
from agensh.embedded.forge.shapes_base import stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import repos, users
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode

router = APIRouter(prefix="/api/v1")


class NewRepo(BaseModel):
    name: str = ""
    description: str = ""
    private: bool = False
    auto_init: bool = False
    default_branch: str = ""
    readme: str = ""


class RepoChange(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str | None = None
    description: str | None = None
    website: str | None = None
    private: bool | None = None
    archived: bool | None = None
    default_branch: str | None = None


class Collaborator(BaseModel):
    permission: str = "write"


async def _create(call: ApiCall, owner: Row, new: NewRepo) -> Json:
    forge = call.forge
    branch = new.default_branch or "main"
    if not await forge.git.valid_branch(forge.data, branch):
        raise unprocessable(f"default_branch: {branch!r} is not a valid branch name")
    # The repository is made before its row: who sees the row finds it whole, whenever the forge is killed.
    async with forge.locks.holding(("repository", owner["id"], new.name.lower())):
        await call.read(lambda tx: repos.check_new(tx, owner, new.name))
        path = forge.path(owner["name"], new.name)
        if path.exists():  # left over by a creation that was cut off
            await asyncio.to_thread(shutil.rmtree, path)
        await forge.git.init_bare(path, branch)
        await asyncio.to_thread(http_backend.prepare, path)
        if new.auto_init:
            text = f"# {new.name}\n\n{new.description}".rstrip() + "\n"
            readme = Change("create", "README.md", text.encode())
            sha = await write_files(forge.git, path, None, [readme], "Initial commit", forge.person(owner))
            await forge.git.update_ref(path, f"refs/heads/{branch}", sha, ZERO)
        now = forge.now()

        def insert(tx: Tx) -> Json:
            row = repos.create(
                tx, now, owner, new.name, description=new.description, private=new.private, default_branch=branch,
                watch=forge.settings.auto_watch_new_repos,
            )  # fmt: skip
            return call.shapes(tx).repo(row["id"])

        return await call.write(insert)


@router.post("/user/repos", status_code=201)
async def create(call: ApiCall, new: NewRepo) -> Json:
    """Create a repository of one's own; 409 when there is one of that name."""
    return await _create(call, call.user, new)


@router.post("/admin/users/{owner}/repos", status_code=201)
async def create_for(call: ApiCall, owner: str, new: NewRepo) -> Json:
    """Create a repository for a user, as the site administrator."""
    call.require_admin()
    return await _create(call, await call.read(lambda tx: users.require(tx, owner)), new)


async def _list(call: ApiCall, where: str, *values: object) -> list[Json]:
    def find(tx: Tx) -> list[Json]:
        rows = tx.all(f"SELECT * FROM repos WHERE {where} ORDER BY lower_name, id", *values)
        seen = [row for row in rows if repos.mode_of(tx, call.user, row) is not Mode.NONE]
        shapes = call.shapes(tx)
        return [shapes.repo(row["id"]) for row in call.slice(seen)]

    return await call.read(find)


@router.get("/user/repos")
async def mine(call: ApiCall) -> list[Json]:
    """The caller's repositories, and those where they collaborate."""
    sql = "owner_id = ? OR id IN (SELECT repo_id FROM collaborators WHERE user_id = ?)"
    return await _list(call, sql, call.user["id"], call.user["id"])


@router.get("/users/{name}/repos")
async def of_user(call: ApiCall, name: str) -> list[Json]:
    """A user's repositories."""
    user = await call.read(lambda tx: users.require(tx, name))
    return await _list(call, "owner_id = ?", user["id"])


@router.get("/repos/search")
async def search(call: ApiCall) -> Json:
    """Repositories whose name contains `q`."""
    words = call.request.query_params.get("q", "").lower()
    return {"ok": True, "data": await _list(call, "instr(lower_name, ?) > 0", words)}


@router.get("/repos/{owner}/{name}")
async def get(call: ApiCall, owner: str, name: str) -> Json:
    """A repository."""
    repo, path = await call.repo(owner, name)
    count = len(await call.forge.git.branches(path))
    return {**await call.read(lambda tx: call.shapes(tx).repo(repo["id"])), "branch_count": count}


@router.patch("/repos/{owner}/{name}")
async def edit(call: ApiCall, owner: str, name: str, new: RepoChange) -> Json:
    """Change a repository; renaming is not offered."""
    repo, path = (
        await call.repo(owner, name, Mode.ADMIN) if new.archived is None else await _even_archived(call, owner, name)
    )
    columns: dict[str, Any] = new.model_dump(
        include={"description", "website", "private", "archived", "default_branch"}, exclude_none=True
    )
    if new.name is not None and new.name != repo["name"]:
        raise unprocessable("name: this forge does not rename repositories")
    if new.default_branch is not None:
        if branch_tip(path, new.default_branch) is None:
            raise unprocessable(f"default_branch: {new.default_branch!r} does not exist")
        await call.forge.git.set_head(path, new.default_branch)
    extra = {key: value for key, value in (new.model_extra or {}).items() if key in repos.OPTIONS and value is not None}
    for key, value in extra.items():
        if type(value) is not type(repos.OPTIONS[key]):
            raise unprocessable(f"{key}: {value!r} is not a {type(repos.OPTIONS[key]).__name__}")

    def save(tx: Tx) -> Json:
        row = repos.by_id(tx, repo["id"])
        options = json.dumps(json.loads(row["options"]) | extra)
        tx.update("repos", "id", row["id"], updated=call.forge.now(), options=options, **columns)
        return call.shapes(tx).repo(row["id"])

    return await call.write(save)


async def _even_archived(call: ApiCall, owner: str, name: str) -> tuple[Row, Path]:
    repo, path = await call.repo(owner, name)
    if await call.read(lambda tx: repos.mode_of(tx, call.user, repo)) < Mode.ADMIN:
        raise ApiError(403, "user should be an owner or a collaborator with admin write of a repository")
    return repo, path


@router.delete("/repos/{owner}/{name}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str) -> None:
    """Delete a repository with all its issues; by its owner or a site administrator."""
    repo, path = await _even_archived(call, owner, name)
    if await call.read(lambda tx: repos.mode_of(tx, call.user, repo)) < Mode.OWNER:
        raise ApiError(403, "user should be the owner of the repo")
    # A new repository of the same name waits: its files would go with those of this one.
    async with call.forge.locks.holding(("repository", repo["owner_id"], repo["lower_name"])):
        await call.write(lambda tx: tx.run("DELETE FROM repos WHERE id = ?", repo["id"]))
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


@router.get("/repos/{owner}/{name}/collaborators")
async def collaborators(call: ApiCall, owner: str, name: str) -> list[Json]:
    """Those who collaborate."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        rows = tx.all(
            "SELECT u.* FROM users u JOIN collaborators c ON c.user_id = u.id WHERE c.repo_id = ? ORDER BY u.id",
            repo["id"],
        )
        shapes = call.shapes(tx)
        return [shapes.user_row(row) for row in call.slice(rows)]

    return await call.read(find)


@router.get("/repos/{owner}/{name}/collaborators/{user}", status_code=204)
async def is_collaborator(call: ApiCall, owner: str, name: str, user: str) -> None:
    """204 when the user collaborates, 404 when not."""
    repo, _ = await call.repo(owner, name)

    def check(tx: Tx) -> None:
        row = users.require(tx, user)
        sql = "SELECT 1 FROM collaborators WHERE repo_id = ? AND user_id = ?"
        if tx.value(sql, repo["id"], row["id"]) is None:
            raise not_found()

    await call.read(check)


@router.get("/repos/{owner}/{name}/collaborators/{user}/permission")
async def permission(call: ApiCall, owner: str, name: str, user: str) -> Json:
    """What a user may do."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> Json:
        row = users.require(tx, user)
        mode = repos.mode_of(tx, row, repo)
        return {
            "permission": mode.name.lower(),
            "role_name": mode.name.lower(),
            "user": call.shapes(tx).user_row(row),
        }

    return await call.read(find)


@router.put("/repos/{owner}/{name}/collaborators/{user}", status_code=204)
async def add_collaborator(call: ApiCall, owner: str, name: str, user: str, new: Collaborator | None = None) -> None:
    """Give a user rights; write when nothing is said."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)
    permission = new.permission if new else "write"
    await call.write(lambda tx: repos.set_collaborator(tx, repo, user, permission))


@router.delete("/repos/{owner}/{name}/collaborators/{user}", status_code=204)
async def remove_collaborator(call: ApiCall, owner: str, name: str, user: str) -> None:
    """Take the rights away."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)

    def remove(tx: Tx) -> None:
        row = users.require(tx, user)
        tx.run("DELETE FROM collaborators WHERE repo_id = ? AND user_id = ?", repo["id"], row["id"])

    await call.write(remove)


@router.get("/repos/{owner}/{name}/subscription")
async def subscription(call: ApiCall, owner: str, name: str) -> Json:
    """Whether the caller watches; 404 when not."""
    repo, _ = await call.repo(owner, name)
    return await call.read(lambda tx: _watch(call, tx, repo))


def _watch(call: ApiCall, tx: Tx, repo: Row) -> Json:
    row = tx.one("SELECT * FROM watches WHERE repo_id = ? AND user_id = ?", repo["id"], call.user["id"])
    if row is None or row["ignored"]:
        raise not_found()
    api = call.shapes(tx).api(repo["id"])
    return {
        "subscribed": True,
        "ignored": False,
        "reason": None,
        "created_at": stamp(row["created"]),
        "url": f"{api}/subscription",
        "repository_url": api,
    }


@router.put("/repos/{owner}/{name}/subscription")
async def watch(call: ApiCall, owner: str, name: str) -> Json:
    """Watch: hear of every issue, comment and pull request of the repository."""
    repo, _ = await call.repo(owner, name)

    def save(tx: Tx) -> Json:
        tx.run(
            "INSERT INTO watches (repo_id, user_id, ignored, created) VALUES (?, ?, 0, ?) "
            "ON CONFLICT (repo_id, user_id) DO UPDATE SET ignored = 0",
            repo["id"], call.user["id"], call.forge.now(),
        )  # fmt: skip
        return _watch(call, tx, repo)

    return await call.write(save)


@router.delete("/repos/{owner}/{name}/subscription", status_code=204)
async def unwatch(call: ApiCall, owner: str, name: str) -> Response:
    """Stop watching."""
    repo, _ = await call.repo(owner, name)
    sql = "DELETE FROM watches WHERE repo_id = ? AND user_id = ?"
    await call.write(lambda tx: tx.run(sql, repo["id"], call.user["id"]))
    return Response(status_code=204)


@router.get("/repos/{owner}/{name}/subscribers")
async def subscribers(call: ApiCall, owner: str, name: str) -> list[Json]:
    """Those who watch."""
    repo, _ = await call.repo(owner, name)

    def find(tx: Tx) -> list[Json]:
        rows = tx.all("SELECT user_id FROM watches WHERE repo_id = ? AND ignored = 0 ORDER BY user_id", repo["id"])
        shapes = call.shapes(tx)
        return [shapes.user(row["user_id"]) for row in call.slice(rows)]

    return await call.read(find)
