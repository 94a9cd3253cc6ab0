"""Merging pull requests.

The lock is one a pull request, not one a base, as in Gitea: merges into one base race at the ref, and the loser gets
409. The commit is made in memory; `update-ref` with the old tip is the compare-and-swap.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Response
from pydantic import AliasChoices, BaseModel, Field

from agensh.embedded.forge import history, merging
from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.git import GitError, branch_tip
from agensh.embedded.forge.mergeability import UNKNOWN, VIEWED
from agensh.embedded.forge.shapes import MERGEABLE
from agensh.embedded.forge.state import ApiCall, Forge
from agensh.embedded.forge.store import issues as store
from agensh.embedded.forge.store import notifications, protections, repos, statuses
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.sync import branches_moved, drop_intent, merged, retarget

log = logging.getLogger(__name__)

router = APIRouter(prefix="/api/v1")

ALLOWED = {
    "merge": "allow_merge_commits",
    "rebase": "allow_rebase",
    "rebase-merge": "allow_rebase_explicit",
    "squash": "allow_squash_merge",
    "fast-forward-only": "allow_fast_forward_only_merge",
}


class Merge(BaseModel):
    """Both spellings are in use: Gitea's code names the fields `Do`, its API description `do`."""

    do: str = Field("", validation_alias=AliasChoices("Do", "do"))
    title: str = Field("", validation_alias=AliasChoices("MergeTitleField", "merge_title_field"))
    message: str = Field("", validation_alias=AliasChoices("MergeMessageField", "merge_message_field"))
    head_commit_id: str = ""
    delete_branch_after_merge: bool | None = None
    force_merge: bool | None = None
    merge_when_checks_succeed: bool | None = None


@router.get("/repos/{owner}/{name}/pulls/{number}/merge")
async def is_merged(call: ApiCall, owner: str, name: str, number: int) -> Response:
    """204 when merged, 404 when not."""
    repo, _ = await call.repo(owner, name)
    _, pull = await call.read(lambda tx: store.require_pull(tx, repo, number))
    if not pull["merged"]:
        raise not_found()
    return Response(status_code=204)


@router.post("/repos/{owner}/{name}/pulls/{number}/merge")
async def merge(call: ApiCall, owner: str, name: str, number: int, new: Merge) -> Response:
    """Merge.

    405 while it is checked, in conflict, merged already or not allowed; 409 on a lost race or a moved head.
    """
    repo, path = await call.repo(owner, name)
    if new.do not in ALLOWED:
        raise unprocessable(f"[Do]: In({','.join(ALLOWED)})" if new.do else "[Do]: Required")
    if new.merge_when_checks_succeed:
        raise unprocessable("merge_when_checks_succeed: this forge does not schedule merges; merge when they succeeded")
    forge = call.forge
    issue, _ = await call.read(lambda tx: store.require_pull(tx, repo, number))
    async with forge.locks.holding(issue["id"]):
        pull = await call.read(lambda tx: _ready(call, tx, repo, number, new))
        if pull["status"] in UNKNOWN:
            forge.checker.want(issue["id"], VIEWED)
        if pull["status"] not in MERGEABLE:
            raise ApiError(405, "Please try again later")
        head, base = branch_tip(path, pull["head_branch"]), branch_tip(path, pull["base_branch"])
        if head is None or base is None:
            raise not_found()
        if new.head_commit_id and new.head_commit_id != head:
            raise ApiError(409, "head out of date")
        sha = await _commit(call, repo, path, issue, pull, base, head, new)
        # The intent stands before the ref moves: a crash in between is settled at the next start (sync.reconcile).
        await call.write(
            lambda tx: tx.update("pulls", "issue_id", issue["id"], pending_sha=sha, pending_by=call.user["id"])
        )
        if not await forge.git.update_ref(path, f"refs/heads/{pull['base_branch']}", sha, base):
            await call.write(lambda tx: drop_intent(tx, issue["id"]))
            raise ApiError(409, "merge push out of date")
        done = partial(_merged, now=forge.now(), issue_id=issue["id"], sha=sha, head=head, user_id=call.user["id"])
        await forge.behind.now_or_later(partial(forge.db.write, done))
    moved = {pull["base_branch"]}
    delete = new.delete_branch_after_merge
    if delete is None:
        delete = repos.options(repo)["default_delete_branch_after_merge"]
    if delete:
        remove = partial(_remove_head, forge, path, repo=repo, pull=pull, head=head, user=call.user)
        if not await forge.behind.now_or_later(remove):
            about = {"repository": f"{owner}/{name}", "branch": pull["head_branch"]}
            log.info("a merged branch waits to be deleted", extra=about)
        moved.add(pull["head_branch"])
    await branches_moved(forge, repo, path, moved, call.user)
    return Response(status_code=200)


async def _remove_head(forge: Forge, path: Path, *, repo: Row, pull: Row, head: str, user: Row) -> None:
    """Delete the branch of a merge, unless it is protected or has moved since."""
    branch = pull["head_branch"]
    if not await forge.db.read(lambda tx: _may_delete(tx, repo, pull, user)):
        return
    await forge.db.write(lambda tx: retarget(tx, repo["id"], branch, pull["base_branch"]))
    try:
        await forge.git.delete_ref(path, f"refs/heads/{branch}", head)
    except GitError as error:
        if error.no_room:
            raise
        # The merge is done and is not to be asked for again.
        log.error("a merged branch was not deleted", extra={"branch": branch, "error": str(error)})


def _merged(tx: Tx, now: int, issue_id: int, sha: str, head: str, user_id: int) -> None:
    tx.update("pulls", "issue_id", issue_id, head_sha=head)
    merged(tx, now, issue_id, sha, user_id)


def _may_delete(tx: Tx, repo: Row, pull: Row, user: Row) -> bool:
    branch = pull["head_branch"]
    if branch == repo["default_branch"] or protections.rule_for(tx, repo["id"], branch) is not None:
        return False
    return repos.mode_of(tx, user, repo) >= Mode.WRITE


def _ready(call: ApiCall, tx: Tx, repo: Row, number: int, new: Merge) -> Row:
    """Check what does not depend on the commits; return the pull request."""
    issue, pull = store.require_pull(tx, repo, number)
    if pull["merged"]:
        raise ApiError(405, "The PR is already merged")
    if issue["closed"]:
        raise not_found()
    if repos.mode_of(tx, call.user, repo) < Mode.WRITE:
        raise ApiError(405, "User not allowed to merge PR")
    rule = protections.rule_for(tx, repo["id"], pull["base_branch"])
    if rule is not None and not rule.may_merge(call.user):
        raise ApiError(405, "User not allowed to merge PR")
    if notifications.work_in_progress(issue["title"]):
        raise ApiError(405, "Work in progress PRs cannot be merged")
    if not repos.options(repo)[ALLOWED[new.do]]:
        raise ApiError(405, f"Invalid merge style: {new.do} is not allowed in this repository")
    if rule is not None and pull["status"] in MERGEABLE:
        reason = _blocked(tx, rule, issue, pull)
        if reason and not (new.force_merge and rule.may_bypass(call.user)):
            raise ApiError(405, reason)
    return pull


def _blocked(tx: Tx, rule: protections.Rule, issue: Row, pull: Row) -> str:
    """Why a protected branch does not take the pull request now; empty when it does."""
    if rule["enable_status_check"]:
        state = statuses.required(tx, pull["repo_id"], pull["head_sha"], rule["status_check_contexts"])
        if state != "success":
            return "Not all required status checks successful"
    official = "issue_id = ? AND official = 1 AND dismissed = 0 AND state = ?"
    approvals = f"SELECT count(DISTINCT user_id) FROM reviews WHERE {official}"
    if rule["ignore_stale_approvals"]:
        approvals += " AND stale = 0"
    if tx.value(approvals, issue["id"], "APPROVED") < rule["required_approvals"]:
        return "Does not have enough approvals"
    if rule["block_on_rejected_reviews"] and tx.value(approvals, issue["id"], "REQUEST_CHANGES"):
        return "There are requested changes"
    if rule["block_on_official_review_requests"] and tx.value(approvals, issue["id"], "REQUEST_REVIEW"):
        return "There are official review requests"
    if rule["block_on_outdated_branch"] and pull["behind"]:
        return "The head branch is behind the base branch"
    return ""


async def _commit(call: ApiCall, repo: Row, path: Path, issue: Row, pull: Row, base: str, head: str, new: Merge) -> str:
    """Make what the base will point to; 409 with the paths when the sides conflict after all."""
    git, by = call.forge.git, call.forge.person(call.user)
    title = new.title
    if not title:
        title = f"Merge pull request '{issue['title']}' (#{issue['number']})"
        title += f" from {pull['head_branch']} into {pull['base_branch']}"
    message = f"{title}\n\n{new.message}".strip() + "\n"
    try:
        if new.do == "merge":
            return await merging.merge(git, path, base, head, message, by)
        if new.do == "rebase":
            return await merging.rebase(git, path, base, head, by)
        if new.do == "rebase-merge":
            tip = await merging.rebase(git, path, base, head, by)
            return await merging.merge(git, path, base, tip, message, by)
        if new.do == "squash":
            own = await history.commits(git, path, "--reverse", f"{base}..{head}")
            poster = await call.read(lambda tx: _poster(tx, issue))
            title = new.title or f"{issue['title']} (#{issue['number']})"
            text = new.message or (own[0].message.partition("\n\n")[2] if len(own) == 1 else issue["body"])
            message = f"{title}\n\n{text}".strip() + "\n"
            return await merging.squash(git, path, base, head, message, call.forge.person(poster), by)
        return await merging.fast_forward(git, path, base, head)
    except merging.NotFastForward as error:
        raise ApiError(409, "Merge DivergingFastForwardOnly Error: the base has commits the head has not") from error
    except merging.MergeConflict as conflict:
        kind = "Rebase" if conflict.commit else "Merge"
        raise ApiError(
            409, f"{kind} Conflict Error: {', '.join(conflict.paths)}", conflicts=conflict.paths, commit=conflict.commit
        ) from conflict


def _poster(tx: Tx, issue: Row) -> Row:
    user = tx.one("SELECT * FROM users WHERE id = ?", issue["poster_id"])
    assert user is not None
    return user
