"""Branches."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge import history
from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.git import Person, branch_tip
from agensh.embedded.forge.history import CommitInfo
from agensh.embedded.forge.objects import ZERO
from agensh.embedded.forge.routes.history import UNVERIFIED
from agensh.embedded.forge.shapes_base import stamp
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import protections, repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import branches_moved

router = APIRouter(prefix="/api/v1")


class NewBranch(BaseModel):
    new_branch_name: str = ""
    old_branch_name: str = ""
    old_ref_name: str = ""


def _shape(call: ApiCall, tx: Tx, repo: Row, name: str, info: CommitInfo) -> Json:
    shapes = call.shapes(tx)
    rule = protections.rule_for(tx, repo["id"], name)
    writer = repos.mode_of(tx, call.user, repo) >= Mode.WRITE

    def person(who: Person) -> Json:
        login = tx.value("SELECT name FROM users WHERE email = ?", who.email)
        return {"name": who.name, "email": who.email, "username": login or ""}

    return {
        "name": name,
        "commit": {
            "id": info.sha,
            "message": info.message,
            "url": f"{shapes.html(repo['id'])}/commit/{info.sha}",
            "author": person(info.author),
            "committer": person(info.committer),
            "verification": UNVERIFIED,
            "timestamp": stamp(info.committer.when),
            "added": None,
            "removed": None,
            "modified": None,
        },
        "protected": rule is not None,
        "required_approvals": rule["required_approvals"] if rule else 0,
        "enable_status_check": bool(rule and rule["enable_status_check"]),
        "status_check_contexts": rule["status_check_contexts"] if rule else [],
        "user_can_push": writer and (rule is None or rule.may_push(call.user)),
        "user_can_merge": writer and (rule is None or rule.may_merge(call.user)),
        "effective_branch_protection_name": rule.name if rule else "",
    }


@router.get("/repos/{owner}/{name}/branches")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """All branches, the default one first, then the latest."""
    repo, path = await call.repo(owner, name)
    found = await call.forge.git.branches(path)
    found.sort(key=lambda pair: pair[0] != repo["default_branch"])
    shown = [(branch, await history.commit(call.forge.git, path, sha)) for branch, sha in call.slice(found)]
    return await call.read(lambda tx: [_shape(call, tx, repo, branch, info) for branch, info in shown])


@router.post("/repos/{owner}/{name}/branches", status_code=201)
async def create(call: ApiCall, owner: str, name: str, new: NewBranch) -> Json:
    """Create a branch from another, a tag or a commit; 409 when it exists."""
    repo, path = await call.repo(owner, name, Mode.WRITE)
    git, branch = call.forge.git, new.new_branch_name
    if not await git.valid_branch(path, branch):
        raise unprocessable(f"new_branch_name: {branch!r} is not a valid branch name")
    source = await git.resolve(path, new.old_ref_name or new.old_branch_name or repo["default_branch"])
    if source is None:
        raise ApiError(404, "The old branch does not exist")
    rule = await call.read(lambda tx: protections.rule_for(tx, repo["id"], branch))
    if rule is not None and not rule.may_push(call.user):
        raise forbidden(f"branch {branch} is protected")
    if branch_tip(path, branch) is not None or not await git.update_ref(path, f"refs/heads/{branch}", source, ZERO):
        raise ApiError(409, "The branch already exists.")
    await branches_moved(call.forge, repo, path, {branch}, call.user)
    info = await history.commit(git, path, source)
    return await call.read(lambda tx: _shape(call, tx, repo, branch, info))


@router.get("/repos/{owner}/{name}/branches/{branch:path}")
async def get(call: ApiCall, owner: str, name: str, branch: str) -> Json:
    """A branch."""
    repo, path = await call.repo(owner, name)
    tip = branch_tip(path, branch)
    if tip is None:
        raise not_found()
    info = await history.commit(call.forge.git, path, tip)
    return await call.read(lambda tx: _shape(call, tx, repo, branch, info))


@router.delete("/repos/{owner}/{name}/branches/{branch:path}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, branch: str) -> None:
    """Delete a branch, not the default and not a protected one; its open pull requests close."""
    repo, path = await call.repo(owner, name, Mode.WRITE)
    tip = branch_tip(path, branch)
    if tip is None:
        raise not_found()
    if branch == repo["default_branch"]:
        raise forbidden("can not delete default or pull request target branch")
    if await call.read(lambda tx: protections.rule_for(tx, repo["id"], branch)) is not None:
        raise forbidden("branch protected")
    if not await call.forge.git.delete_ref(path, f"refs/heads/{branch}", tip):
        raise ApiError(409, "The branch moved while it was deleted.")
    await branches_moved(call.forge, repo, path, {branch}, call.user)
