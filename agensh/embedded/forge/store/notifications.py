"""Notification rows: one for each (user, issue), written in the transaction of what happened.

A new event on an unread row only touches it: `comment_id` keeps the first unread comment. On a read row it becomes the
first. Times are whole seconds.
"""

from __future__ import annotations

import re

from agensh.embedded.forge.store import repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode

MENTION = re.compile(r"(?:^|(?<=[\s\x28\x5b'\"`,;:>*_/]))@([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def notify(tx: Tx, now: int, issue: Row, author: Row, users: set[int], comment_id: int = 0) -> None:
    """Tell some users of an event on an issue, except those who cannot see the repository."""
    repo = repos.by_id(tx, issue["repo_id"])
    for user_id in sorted(users):
        user = tx.one("SELECT * FROM users WHERE id = ?", user_id)
        if user is None or repos.mode_of(tx, user, repo) is Mode.NONE:
            continue
        row = tx.one("SELECT id, status FROM notifications WHERE user_id = ? AND issue_id = ?", user_id, issue["id"])
        if row is None:
            tx.insert(
                "notifications", user_id=user_id, repo_id=repo["id"], issue_id=issue["id"], status="unread",
                comment_id=comment_id, updated_by=author["id"], created=now, updated=now,
            )  # fmt: skip
        elif row["status"] == "read":
            tx.update(
                "notifications", "id", row["id"], status="unread", comment_id=comment_id,
                updated_by=author["id"], updated=now,
            )  # fmt: skip
        else:
            tx.update("notifications", "id", row["id"], updated_by=author["id"], updated=now)
        tx.touched.add(user_id)


def broadcast(tx: Tx, now: int, issue: Row, author: Row, comment_id: int = 0) -> None:
    """Tell everybody who follows an issue, except the author."""
    users = followers(tx, issue, with_issue_watchers=True)
    users.discard(author["id"])
    notify(tx, now, issue, author, users, comment_id)


def followers(tx: Tx, issue: Row, *, with_issue_watchers: bool) -> set[int]:
    """Return issue watchers, repository watchers and participants, without those who unwatched the issue.

    Watchers of the repository are left out while a pull request is marked as work in progress.
    """
    found = participants(tx, issue)
    if with_issue_watchers:
        found |= _ids(tx, "SELECT user_id FROM issue_watches WHERE issue_id = ? AND watching = 1", issue["id"])
    if not (issue["is_pull"] and work_in_progress(issue["title"])):
        found |= _ids(tx, "SELECT user_id FROM watches WHERE repo_id = ? AND ignored = 0", issue["repo_id"])
    return found - _ids(tx, "SELECT user_id FROM issue_watches WHERE issue_id = ? AND watching = 0", issue["id"])


def participants(tx: Tx, issue: Row) -> set[int]:
    """Return the poster and those who commented or reviewed; being assigned alone does not make a participant."""
    sql = "SELECT DISTINCT poster_id FROM comments WHERE issue_id = ? AND kind IN ('comment', 'code', 'review')"
    return {int(issue["poster_id"])} | _ids(tx, sql, issue["id"])


def mentioned(tx: Tx, issue: Row, author: Row, text: str) -> set[int]:
    """Return the users a text mentions by @name (outside code), without the author; the mention is remembered."""
    names = {name.lower() for name in MENTION.findall(CODE.sub(" ", text))}
    found: set[int] = set()
    for name in names:
        user_id = tx.value("SELECT id FROM users WHERE lower_name = ?", name)
        if user_id is not None and user_id != author["id"]:
            tx.run("INSERT OR IGNORE INTO mentions (issue_id, user_id) VALUES (?, ?)", issue["id"], user_id)
            found.add(user_id)
    return found


def mark(tx: Tx, now: int, user_id: int, row: Row, status: str) -> None:
    """Change one row's status; that advances `updated` too, so the owner's stream echoes it."""
    tx.update("notifications", "id", row["id"], status=status, updated=now)
    tx.touched.add(user_id)


def unread(tx: Tx, user_id: int) -> int:
    """Return how many unread rows a user has."""
    count: int = tx.value("SELECT count(*) FROM notifications WHERE user_id = ? AND status = 'unread'", user_id)
    return count


def work_in_progress(title: str) -> bool:
    """Say whether a title marks a pull request as unfinished."""
    return title.upper().startswith(("WIP:", "[WIP]"))


def _ids(tx: Tx, sql: str, *values: object) -> set[int]:
    return {row[0] for row in tx.all(sql, *values)}
