"""Pull requests: opening, reading, editing, updating their branch."""

from __future__ import annotations

import sqlite3
from functools import partial

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from agensh.embedded.forge import history, merging
from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.git import branch_tip
from agensh.embedded.forge.mergeability import UNKNOWN, VIEWED, examine, save_result
from agensh.embedded.forge.routes.history import commit_shapes
from agensh.embedded.forge.routes.issues import IssueChange, apply_change
from agensh.embedded.forge.shapes import Shapes
from agensh.embedded.forge.shapes_base import quoted
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store import notifications, protections
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import branches_moved, issue_row, keep_head

router = APIRouter(prefix="/api/v1")


class NewPull(IssueChange):
    head: str = ""
    base: str = ""
    labels: list[int] | None = None
    reviewers: list[str] | None = None


class PullChange(IssueChange):
    base: str | None = None
    labels: list[int] | None = None
    allow_maintainer_edit: bool | None = None


def _branch(repo: Row, owner: str, name: str) -> str:
    """A head as `branch` or `owner:branch`; other repositories (forks) are not served."""
    prefix, colon, branch = name.partition(":")
    if not colon:
        return name
    if prefix.lower() != owner.lower():
        raise not_found()
    return branch


@router.post("/repos/{owner}/{name}/pulls", status_code=201)
async def create(call: ApiCall, owner: str, name: str, new: NewPull) -> Json:
    """Open a pull request: 409 when there is an open one of the same branches, 422 when there is nothing to merge.

    Mergeability is checked before the answer; a push that comes next sets it back to checking.
    """
    repo, path = await call.repo(owner, name)
    if repo["archived"]:
        raise ApiError(423, f"{owner}/{name} is archived")
    head, base = _branch(repo, owner, new.head), new.base
    if not (new.title or "").strip():
        raise unprocessable("[Title]: Required")
    if head == base:
        raise unprocessable("Invalid PullRequest: There are no changes between the head and the base")
    for branch in (head, base):
        if not branch or branch_tip(path, branch) is None:
            raise not_found()
    async with call.forge.locks.holding(("create", repo["id"], head)):
        result = await examine(call.forge, path, head, base)
        if result is None:
            raise not_found()
        if result.status == "empty":
            raise unprocessable("Invalid PullRequest: There are no changes between the head and the base")
        now = call.forge.now()

        def insert(tx: Tx) -> tuple[int, Json]:
            twin = store.open_pull(tx, repo["id"], head, base)
            if twin is not None:
                raise ApiError(
                    409,
                    f"pull request already exists for these targets [id: {twin['id']}, issue_id: {twin['id']}, "
                    f"head_repo_id: {repo['id']}, base_repo_id: {repo['id']}, "
                    f"head_branch: {head}, base_branch: {base}]",
                )
            issue = store.create(tx, now, repo, call.user, new.title or "", new.body or "", is_pull=True)
            tx.insert(
                "pulls", issue_id=issue["id"], repo_id=repo["id"], head_branch=head, base_branch=base,
                head_sha=result.head, merge_base=result.merge_base, status="checking",
            )  # fmt: skip
            save_result(tx, issue["id"], result)
            store.set_labels(tx, issue, new.labels or [])
            names = [*(new.assignees or []), *([new.assignee] if new.assignee else [])]
            assigned = store.set_assignees(tx, now, repo, issue, call.user, names) if names else set()
            told = notifications.followers(tx, issue, with_issue_watchers=False)
            told |= notifications.mentioned(tx, issue, call.user, new.body or "") | assigned
            notifications.notify(tx, now, issue, call.user, told - {call.user["id"]})
            return issue["id"], _shape(call.shapes(tx), tx, issue["id"])

        issue_id, shape = await call.write(insert)
        await call.forge.behind.now_or_later(partial(keep_head, call.forge, path, issue_id, result.head))
    if (branch_tip(path, head), branch_tip(path, base)) != (result.head, result.base):
        await branches_moved(call.forge, repo, path, {head, base}, call.user)
    return shape


def _shape(shapes: Shapes, tx: Tx, issue_id: int) -> Json:
    pull = tx.one("SELECT * FROM pulls WHERE issue_id = ?", issue_id)
    assert pull is not None
    return shapes.pull(issue_row(tx, issue_id), pull)


@router.get("/repos/{owner}/{name}/pulls")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """Pull requests; listing triggers no check."""
    repo, _ = await call.repo(owner, name)
    query = call.request.query_params
    where, values = ["i.repo_id = ?"], [repo["id"]]
    state = query.get("state", "open")
    if state != "all":
        where.append("i.closed = ?")
        values.append(state == "closed")
    if base := query.get("base_branch"):
        where.append("p.base_branch = ?")
        values.append(base)
    if poster := query.get("poster"):
        where.append("i.poster_id = (SELECT id FROM users WHERE lower_name = ?)")
        values.append(poster.lower())
    for label in query.getlist("labels"):
        where.append("EXISTS (SELECT 1 FROM issue_labels x WHERE x.issue_id = i.id AND CAST(x.label_id AS TEXT) = ?)")
        values.append(label)
    order = {
        "oldest": "i.created, i.id",
        "recentupdate": "i.updated DESC, i.id DESC",
        "leastupdate": "i.updated, i.id",
        "recentclose": "i.closed_at DESC, i.id DESC",
        "mostcomment": "i.comments DESC, i.id DESC",
        "leastcomment": "i.comments, i.id",
    }.get(query.get("sort", ""), "i.created DESC, i.id DESC")
    source = f"FROM issues i JOIN pulls p ON p.issue_id = i.id WHERE {' AND '.join(where)}"

    def find(tx: Tx) -> list[Json]:
        call.paged(tx.value(f"SELECT count(*) {source}", *values))
        rows = tx.all(f"SELECT i.id {source} ORDER BY {order} LIMIT ? OFFSET ?", *values, call.limit, call.offset)
        shapes = call.shapes(tx)
        return [_shape(shapes, tx, row["id"]) for row in rows]

    return await call.read(find)


async def _view(call: ApiCall, issue: Row, pull: Row) -> Json:
    if pull["status"] in UNKNOWN and not issue["closed"]:
        call.forge.checker.want(issue["id"], VIEWED)
    return await call.read(lambda tx: _shape(call.shapes(tx), tx, issue["id"]))


@router.get("/repos/{owner}/{name}/pulls/{number}.diff")
async def diff(call: ApiCall, owner: str, name: str, number: int) -> PlainTextResponse:
    """The change as a diff."""
    return await _diff(call, owner, name, number, patch=False)


@router.get("/repos/{owner}/{name}/pulls/{number}.patch")
async def patch(call: ApiCall, owner: str, name: str, number: int) -> PlainTextResponse:
    """The commits as mails."""
    return await _diff(call, owner, name, number, patch=True)


async def _diff(call: ApiCall, owner: str, name: str, number: int, *, patch: bool) -> PlainTextResponse:
    repo, path = await call.repo(owner, name)
    _, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    base, head = pull["merge_base"], pull["head_sha"]
    if patch:
        done = await call.forge.git.run(path, "format-patch", "--stdout", f"{base}..{head}")
    else:
        done = await call.forge.git.run(path, "diff", "-M", base, head)
    return PlainTextResponse(done.out)


@router.get("/repos/{owner}/{name}/pulls/{number:int}")
async def get(call: ApiCall, owner: str, name: str, number: int) -> Json:
    """A pull request; looking at it asks for the check that it may still need."""
    repo, _ = await call.repo(owner, name)
    issue, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    return await _view(call, issue, pull)


@router.patch("/repos/{owner}/{name}/pulls/{number:int}", status_code=201)
async def edit(call: ApiCall, owner: str, name: str, number: int, new: PullChange) -> Json:
    """Change a pull request (201, as in Gitea); a new base is checked anew."""
    repo, path = await call.repo(owner, name)
    if new.base is not None and branch_tip(path, new.base) is None:
        raise not_found()

    def save(tx: Tx) -> tuple[int, Json]:
        issue, pull = store.require_pull(tx, repo, number)
        if new.state is not None and pull["merged"]:
            raise ApiError(412, "cannot change state of this pull request, it was already merged")
        if new.base is not None and new.base != pull["base_branch"]:
            if store.open_pull(tx, repo["id"], pull["head_branch"], new.base) is not None:
                raise ApiError(409, "there is already a pull request between these branches")
            tx.update("pulls", "issue_id", issue["id"], base_branch=new.base, status="checking", checked_base="")
        apply_change(call, tx, repo, number, new)
        if new.state == "open":
            tip = branch_tip(path, pull["head_branch"])
            if tip is None:
                raise not_found()
            tx.update("pulls", "issue_id", issue["id"], status="checking", head_sha=tip)
        if new.labels is not None:
            store.set_labels(tx, issue, new.labels)
        if new.allow_maintainer_edit is not None:
            tx.update("pulls", "issue_id", issue["id"], allow_maintainer_edit=new.allow_maintainer_edit)
        return issue["id"], _shape(call.shapes(tx), tx, issue["id"])

    issue_id, shape = await call.write(save)
    if new.base is not None or new.state == "open":
        call.forge.checker.want(issue_id, VIEWED)
    return shape


@router.get("/repos/{owner}/{name}/pulls/{number:int}/commits")
async def commits(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """The commits of the head that the base has not, newest first."""
    repo, path = await call.repo(owner, name)
    _, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    found = await history.commits(call.forge.git, path, f"{pull['merge_base']}..{pull['head_sha']}", details=True)
    return await commit_shapes(call, repo, call.slice(found))


@router.get("/repos/{owner}/{name}/pulls/{number:int}/files")
async def files(call: ApiCall, owner: str, name: str, number: int) -> list[Json]:
    """The files it changes."""
    repo, path = await call.repo(owner, name)
    _, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    head = pull["head_sha"]
    found = await history.changes(call.forge.git, path, pull["merge_base"], head)
    html, api = await call.read(lambda tx: (call.shapes(tx).html(repo["id"]), call.shapes(tx).api(repo["id"])))
    return [
        {
            "filename": change.path,
            "previous_filename": change.previous or "",
            "status": change.status,
            "additions": change.additions,
            "deletions": change.deletions,
            "changes": change.additions + change.deletions,
            "html_url": f"{html}/src/commit/{head}/{quoted(change.path)}",
            "contents_url": f"{api}/contents/{quoted(change.path)}?ref={head}",
            "raw_url": f"{html}/raw/commit/{head}/{quoted(change.path)}",
        }
        for change in call.slice(found)
    ]


@router.post("/repos/{owner}/{name}/pulls/{number:int}/update")
async def update(call: ApiCall, owner: str, name: str, number: int) -> Response:
    """Bring the base into the head (`style` merge or rebase).

    409 on a conflict, 422 when closed; 500 when the head is up to date or somebody pushed meanwhile, as in Gitea.
    """
    repo, path = await call.repo(owner, name, Mode.WRITE)
    style = call.request.query_params.get("style", "merge")
    if style not in {"merge", "rebase"}:
        raise unprocessable(f"style: {style!r} is not known; allowed are merge, rebase")
    forge = call.forge
    issue, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    async with forge.locks.holding(issue["id"]):
        issue, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
        if issue["closed"]:
            raise unprocessable("the pull request is closed or merged")
        head_branch = pull["head_branch"]
        rule = await call.read(lambda tx: protections.rule_for(tx, repo["id"], head_branch))
        if rule is not None and not (rule.may_force_push if style == "rebase" else rule.may_push)(call.user):
            raise ApiError(403, f"user may not update the protected branch {head_branch}")
        head, base = branch_tip(path, head_branch), branch_tip(path, pull["base_branch"])
        if head is None or base is None:
            raise not_found()
        if await forge.git.is_ancestor(path, base, head):
            raise ApiError(500, f"HeadBranch of PR {number} is up to date")
        by = forge.person(call.user)
        message = f"Merge branch '{pull['base_branch']}' into {head_branch}\n"
        try:
            if style == "merge":
                new = await merging.merge(forge.git, path, head, base, message, by)
            else:
                new = await merging.rebase(forge.git, path, base, head, by)
        except merging.MergeConflict as conflict:
            raise ApiError(409, "merge failed because of conflict", conflicts=conflict.paths) from conflict
        if not await forge.git.update_ref(path, f"refs/heads/{head_branch}", new, head):
            raise ApiError(500, "PushOutOfDate: the head branch moved while it was updated")
        await branches_moved(forge, repo, path, {head_branch}, call.user)
    return Response(status_code=200)


@router.get("/repos/{owner}/{name}/pulls/{base}/{head:path}")
async def by_branches(call: ApiCall, owner: str, name: str, base: str, head: str) -> Json:
    """The pull request of two branches, the newest if there were several."""
    repo, _ = await call.repo(owner, name)
    branch = _branch(repo, owner, head)

    def find(tx: Tx) -> tuple[Row, Row]:
        row: sqlite3.Row | None = tx.one(
            "SELECT p.* FROM pulls p JOIN issues i ON i.id = p.issue_id WHERE p.repo_id = ? AND p.base_branch = ? "
            "AND p.head_branch = ? ORDER BY i.closed, i.id DESC LIMIT 1",
            repo["id"], base, branch,
        )  # fmt: skip
        if row is None:
            raise not_found()
        return issue_row(tx, row["issue_id"]), row

    return await _view(call, *await call.read(find))
