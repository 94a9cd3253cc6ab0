"""Issues, their labels, assignees and timeline."""

from __future__ import annotations

import json

from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.store import repos, users
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode

MAX_TITLE = 255


def require(tx: Tx, repo: Row, number: int) -> Row:
    """Return an issue or pull request of a repository; 404."""
    issue = tx.one("SELECT * FROM issues WHERE repo_id = ? AND number = ?", repo["id"], number)
    if issue is None:
        raise not_found()
    return issue


def create(
    tx: Tx, now: int, repo: Row, poster: Row, title: str, body: str, *, ref: str = "", is_pull: bool = False
) -> Row:
    """Insert an issue under the next number."""
    issue_id = tx.insert(
        "issues", repo_id=repo["id"], number=repos.next_number(tx, repo), poster_id=poster["id"],
        title=title.strip()[:MAX_TITLE], body=body, ref=ref, is_pull=is_pull, created=now, updated=now,
    )  # fmt: skip
    row = tx.one("SELECT * FROM issues WHERE id = ?", issue_id)
    assert row is not None
    return row


def set_labels(tx: Tx, issue: Row, label_ids: list[int], *, replace: bool = True) -> None:
    """Give an issue labels of its repository; ids of other repositories are ignored, as Gitea does."""
    if replace:
        tx.run("DELETE FROM issue_labels WHERE issue_id = ?", issue["id"])
    for label_id in label_ids:
        if tx.value("SELECT 1 FROM labels WHERE id = ? AND repo_id = ?", label_id, issue["repo_id"]):
            tx.run("INSERT OR IGNORE INTO issue_labels (issue_id, label_id) VALUES (?, ?)", issue["id"], label_id)


def set_assignees(tx: Tx, now: int, repo: Row, issue: Row, doer: Row, names: list[str]) -> set[int]:
    """Replace the assignees and return those who are new; 422 for a name that cannot be assigned."""
    wanted: set[int] = set()
    for name in names:
        user = users.by_name(tx, name)
        if user is None:
            raise unprocessable(f"Assignee does not exist: [name: {name}]")
        if repos.mode_of(tx, user, repo) < Mode.WRITE and not user["is_admin"]:
            raise unprocessable(f"user doesn't have access to repo [user_id: {user['id']}, repo_name: {repo['name']}]")
        wanted.add(user["id"])
    have = {row[0] for row in tx.all("SELECT user_id FROM issue_assignees WHERE issue_id = ?", issue["id"])}
    for user_id in sorted(have ^ wanted):
        removed = user_id in have
        if removed:
            tx.run("DELETE FROM issue_assignees WHERE issue_id = ? AND user_id = ?", issue["id"], user_id)
        else:
            tx.insert("issue_assignees", issue_id=issue["id"], user_id=user_id)
        details = json.dumps({"assignee": user_id, "removed": removed})
        tx.insert(
            "comments", issue_id=issue["id"], poster_id=doer["id"], kind="assignees", details=details,
            created=now, updated=now,
        )  # fmt: skip
    if have != wanted:
        tx.update("issues", "id", issue["id"], updated=now)
    return wanted - have


def title_event(tx: Tx, now: int, issue: Row, doer: Row, title: str) -> None:
    """Note a new title in the timeline; nobody is notified."""
    details = json.dumps({"old": issue["title"], "new": title})
    tx.insert(
        "comments", issue_id=issue["id"], poster_id=doer["id"], kind="change_title", details=details,
        created=now, updated=now,
    )  # fmt: skip


def check_reopen(tx: Tx, issue: Row) -> None:
    """Refuse to reopen a pull request that is merged, or has a twin that is open."""
    pull = tx.one("SELECT * FROM pulls WHERE issue_id = ?", issue["id"])
    assert pull is not None
    if pull["merged"]:
        raise ApiError(412, "cannot change state of this pull request, it was already merged")
    if open_pull(tx, issue["repo_id"], pull["head_branch"], pull["base_branch"]) is not None:
        raise ApiError(409, "a pull request with the same head and base is open already")


def open_pull(tx: Tx, repo_id: int, head: str, base: str) -> Row | None:
    """Return the open pull request of two branches, or None."""
    return tx.one(
        "SELECT i.*, p.status FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "WHERE p.repo_id = ? AND p.head_branch = ? AND p.base_branch = ? AND p.merged = 0 AND i.closed = 0",
        repo_id, head, base,
    )  # fmt: skip


def require_pull(tx: Tx, repo: Row, number: int) -> tuple[Row, Row]:
    """Return issue and pull request rows; 404 when the number is no pull request."""
    issue = require(tx, repo, number)
    pull = tx.one("SELECT * FROM pulls WHERE issue_id = ?", issue["id"])
    if pull is None:
        raise not_found()
    return issue, pull
