"""Bringing the rows to what the refs are: after a push or a merge, and at the start after a crash."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agensh.embedded.forge.git import branch_tip, read_ref
from agensh.embedded.forge.mergeability import MOVED
from agensh.embedded.forge.objects import ZERO
from agensh.embedded.forge.store import notifications, users
from agensh.embedded.forge.store.database import Row, Tx

if TYPE_CHECKING:
    from agensh.embedded.forge.state import Forge

DAY = 86400
CLOSES = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+#(\d{1,9})\b", re.IGNORECASE)


async def branches_moved(forge: Forge, repo: Row, path: Path, branches: set[str], pusher: Row) -> None:
    """Take note that branches may have been created, moved or deleted.

    Open pull requests of such a head are synchronised (timeline entry, notifications, stale reviews); those of such a
    base are set to checking. A pull request whose head or base is gone is closed. Where the store takes no writes the
    rows follow later.
    """
    await forge.behind.now_or_later(partial(_follow, forge, repo, path, branches, pusher))


async def _follow(forge: Forge, repo: Row, path: Path, branches: set[str], pusher: Row) -> None:
    now = forge.now()

    def note(tx: Tx) -> tuple[list[int], list[tuple[int, str]]]:
        tx.update("repos", "id", repo["id"], updated=now)
        recheck: list[int] = []
        heads: list[tuple[int, str]] = []
        for branch in sorted(branches):
            tip = branch_tip(path, branch)
            recheck += _base_moved(tx, forge, repo, branch, tip, pusher, now)
            moved = _head_moved(tx, repo, branch, tip, pusher, now)
            heads += moved
            recheck += [issue_id for issue_id, _ in moved]
        return recheck, heads

    recheck, heads = await forge.db.write(note)
    for issue_id, tip in heads:
        await forge.behind.now_or_later(partial(keep_head, forge, path, issue_id, tip))
    for issue_id in recheck:
        forge.checker.want(issue_id, MOVED)


async def keep_head(forge: Forge, path: Path, issue_id: int, tip: str) -> None:
    """Point refs/pull/N/head at the head of a pull request, so that it outlives the branch."""
    number = await forge.db.read(lambda tx: tx.value("SELECT number FROM issues WHERE id = ?", issue_id))
    ref = f"refs/pull/{number}/head"
    for _ in range(3):
        if await forge.git.update_ref(path, ref, tip, read_ref(path, ref) or ZERO):
            return


def _open(tx: Tx, repo: Row, column: str, branch: str) -> list[Row]:
    return tx.all(
        f"SELECT p.*, i.updated FROM pulls p JOIN issues i ON i.id = p.issue_id "
        f"WHERE p.repo_id = ? AND p.{column} = ? AND p.merged = 0 AND i.closed = 0",
        repo["id"],
        branch,
    )


def _base_moved(tx: Tx, forge: Forge, repo: Row, branch: str, tip: str | None, pusher: Row, now: int) -> list[int]:
    days = forge.settings.delay_check_for_inactive_days
    recheck = []
    for pull in _open(tx, repo, "base_branch", branch):
        if tip is None:
            close(tx, now, issue_row(tx, pull["issue_id"]), pusher)
        elif pull["checked_base"] != tip:
            tx.update("pulls", "issue_id", pull["issue_id"], status="checking")
            if days < 0 or now - pull["updated"] < days * DAY:
                recheck.append(pull["issue_id"])
    return recheck


def _head_moved(tx: Tx, repo: Row, branch: str, tip: str | None, pusher: Row, now: int) -> list[tuple[int, str]]:
    moved = []
    for pull in _open(tx, repo, "head_branch", branch):
        issue = issue_row(tx, pull["issue_id"])
        if tip is None:
            close(tx, now, issue, pusher)
        elif tip != pull["head_sha"]:
            tx.update("pulls", "issue_id", issue["id"], status="checking", head_sha=tip)
            tx.update("issues", "id", issue["id"], updated=now)
            tx.run("UPDATE reviews SET stale = 1 WHERE issue_id = ? AND commit_id != ?", issue["id"], tip)
            details = json.dumps({"old": pull["head_sha"], "new": tip})
            event = add_event(tx, now, issue, pusher, "pull_push", details=details)
            notifications.broadcast(tx, now, issue, pusher, event)
            moved.append((issue["id"], tip))
    return moved


def issue_row(tx: Tx, issue_id: int) -> Row:
    """Return an issue by its id, which exists."""
    row = tx.one("SELECT * FROM issues WHERE id = ?", issue_id)
    assert row is not None
    return row


def add_event(tx: Tx, now: int, issue: Row, user: Row, kind: str, *, body: str = "", details: str = "{}") -> int:
    """Append to an issue's timeline and return the id."""
    return tx.insert(
        "comments", issue_id=issue["id"], poster_id=user["id"], kind=kind, body=body, details=details,
        created=now, updated=now,
    )  # fmt: skip


def close(tx: Tx, now: int, issue: Row, user: Row) -> None:
    """Close an issue or pull request and tell those who follow it."""
    if issue["closed"]:
        return
    tx.update("issues", "id", issue["id"], closed=True, closed_at=now, updated=now)
    event = add_event(tx, now, issue, user, "close")
    notifications.broadcast(tx, now, issue, user, event)


def merged(tx: Tx, now: int, issue_id: int, sha: str, user_id: int) -> None:
    """Write that a pull request is merged as `sha`; its base has that commit already."""
    issue, user = issue_row(tx, issue_id), users.by_id(tx, user_id)
    tx.update(
        "pulls", "issue_id", issue_id, merged=True, merged_sha=sha, merged_at=now, merged_by=user_id,
        pending_sha=None, pending_by=None,
    )  # fmt: skip
    tx.update("issues", "id", issue_id, closed=True, closed_at=now, updated=now)
    event = add_event(tx, now, issue, user, "merge_pull", details=json.dumps({"sha": sha}))
    notifications.broadcast(tx, now, issue, user, event)
    _close_named(tx, now, issue, user)


def _close_named(tx: Tx, now: int, issue: Row, user: Row) -> None:
    """Close the issues that a pull request merged into the default branch says it closes."""
    default = tx.value("SELECT default_branch FROM repos WHERE id = ?", issue["repo_id"])
    if tx.value("SELECT base_branch FROM pulls WHERE issue_id = ?", issue["id"]) != default:
        return
    for number in sorted({int(found) for found in CLOSES.findall(f"{issue['title']}\n{issue['body']}")}):
        named = tx.one(
            "SELECT * FROM issues WHERE repo_id = ? AND number = ? AND is_pull = 0", issue["repo_id"], number
        )
        if named is not None:
            close(tx, now, named, user)


def retarget(tx: Tx, repo_id: int, branch: str, base: str) -> None:
    """Point the open pull requests of a base that is about to be deleted at the base it was merged into."""
    tx.run(
        "UPDATE pulls SET base_branch = ?, status = 'checking', checked_base = '' WHERE repo_id = ? "
        "AND base_branch = ? AND merged = 0 AND issue_id IN (SELECT id FROM issues WHERE closed = 0)",
        base, repo_id, branch,
    )  # fmt: skip


async def reconcile(forge: Forge) -> None:
    """Bring rows and refs to agreement after a stop at any point.

    A merge writes its commit's hash into the row before it moves the ref: where the base has that commit the merge
    happened, and the row is completed; where not, the intent is dropped. Locks that a killed git has left are removed.
    Then every open pull request is compared with its branches, as after a push.
    """
    for pull in await forge.db.read(lambda tx: tx.all("SELECT * FROM pulls WHERE pending_sha IS NOT NULL")):
        await _settle(forge, pull)
    for repo_id in await forge.db.read(lambda tx: [row[0] for row in tx.all("SELECT id FROM repos")]):
        repo, path = await _repo(forge, repo_id)
        if not path.exists():
            await forge.git.init_bare(path, repo["default_branch"])
        await forge.git.leftovers.free(path)
        for pull in await forge.db.read(partial(_all_open, repo=repo)):
            await _compare(forge, repo, path, pull)


async def _settle(forge: Forge, pull: Row) -> None:
    issue_id, sha = pull["issue_id"], pull["pending_sha"]
    _, path = await _repo(forge, pull["repo_id"])
    tip = branch_tip(path, pull["base_branch"])
    if tip is not None and not pull["merged"] and await forge.git.is_ancestor(path, sha, tip):
        done = partial(merged, now=forge.now(), issue_id=issue_id, sha=sha, user_id=pull["pending_by"])
        await forge.db.write(done)
    else:
        await forge.db.write(partial(drop_intent, issue_id=issue_id))


async def _compare(forge: Forge, repo: Row, path: Path, pull: Row) -> None:
    poster = await forge.db.read(lambda tx: users.by_id(tx, pull["poster_id"]))
    head, base = branch_tip(path, pull["head_branch"]), branch_tip(path, pull["base_branch"])
    if head != pull["head_sha"]:
        await branches_moved(forge, repo, path, {pull["head_branch"]}, poster)
    if base is None or base != pull["checked_base"]:
        await branches_moved(forge, repo, path, {pull["base_branch"]}, poster)
    if head is not None:
        await keep_head(forge, path, pull["issue_id"], head)
    if pull["status"] == "checking":
        forge.checker.want(pull["issue_id"])


def drop_intent(tx: Tx, issue_id: int) -> None:
    """Note that the merge that was about to happen did not."""
    tx.update("pulls", "issue_id", issue_id, pending_sha=None, pending_by=None)


def _all_open(tx: Tx, repo: Row) -> list[Row]:
    return tx.all(
        "SELECT p.*, i.poster_id FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "WHERE p.repo_id = ? AND p.merged = 0 AND i.closed = 0",
        repo["id"],
    )


async def _repo(forge: Forge, repo_id: int) -> tuple[Row, Path]:
    def find(tx: Tx) -> tuple[Row, Path]:
        row = tx.one(
            "SELECT r.*, u.name AS owner FROM repos r JOIN users u ON u.id = r.owner_id WHERE r.id = ?", repo_id
        )
        assert row is not None
        return row, forge.path(row["owner"], row["name"])

    return await forge.db.read(find)
