"""Typed client of the forge (Gitea's REST API).

Reads are repeated on failures (full jitter, bounded, `Retry-After` honoured); creates are looked for before they are
sent again, because the forge has no idempotency keys; unknown fields of answers are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agensh.clients.gitea_admin import AdminCalls
from agensh.clients.gitea_core import SERVICE
from agensh.clients.gitea_models import (
    Branch,
    Comment,
    Commit,
    Comparison,
    Happening,
    Issue,
    MergeResult,
    MergeStatus,
    Pull,
    Repo,
    Review,
    Thread,
    UpdateResult,
    UpdateStatus,
    User,
)
from agensh.clients.gitea_pulls import MergeStyle, PullCalls
from agensh.clients.http import read_json
from agensh.clock import utc

__all__ = [
    "Branch",
    "Comment",
    "Commit",
    "Comparison",
    "GiteaClient",
    "Happening",
    "Issue",
    "MergeResult",
    "MergeStatus",
    "MergeStyle",
    "Pull",
    "Repo",
    "Review",
    "Thread",
    "UpdateResult",
    "UpdateStatus",
    "User",
]

SEARCHED_AFTER_A_FAILED_CREATE = 50  # newest issues; a team opens fewer in the seconds of a retry


def whole_seconds(seconds: float) -> str:
    """Return epoch seconds as the RFC 3339 text the forge compares with, rounded down to its resolution."""
    return utc(int(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class GiteaClient(PullCalls, AdminCalls):
    """The forge as one account sees it."""

    async def issues(
        self,
        owner: str,
        repo: str,
        *,
        state: str = "open",
        kind: Literal["issues", "pulls"] | None = "issues",
        q: str = "",
        limit: int = 50,
    ) -> list[Issue]:
        """Return issues (or pull requests, or with `kind=None` both), newest first."""
        params: dict[str, Any] = {"state": state}
        if kind is not None:
            params["type"] = kind
        if q:
            params["q"] = q
        found = await self.get_pages(f"/repos/{owner}/{repo}/issues", params=params, most=limit)
        return [Issue.of(item) for item in found]

    async def issue(self, owner: str, repo: str, number: int) -> Issue:
        """Return one issue (a pull request is one, too)."""
        return Issue.of(await self.get(f"/repos/{owner}/{repo}/issues/{number}"))

    async def create_issue(
        self,
        owner: str,
        repo: str,
        title: str,
        body: str = "",
        *,
        labels: Sequence[int] = (),
        assignees: Sequence[str] = (),
    ) -> Issue:
        """Open an issue. `labels` are ids of the repository's labels."""

        async def post() -> Issue:
            value = {"title": title, "body": body, "labels": list(labels), "assignees": list(assignees)}
            return Issue.of(read_json(await self.request("POST", f"/repos/{owner}/{repo}/issues", json=value), SERVICE))

        async def find() -> Issue | None:
            author = (await self.me()).login
            for issue in await self.issues(owner, repo, state="all", limit=SEARCHED_AFTER_A_FAILED_CREATE):
                same = (issue.author, issue.title, issue.body) == (author, title, body)
                if same and not self.is_mine("issue", issue.number):
                    return issue
            return None

        return await self.create("issue", post, find, lambda issue: issue.number)

    async def comments(self, owner: str, repo: str, number: int, *, since: float | None = None) -> list[Comment]:
        """Return the comments of an issue by id; `since` (inclusive, whole seconds) compares with their last change."""
        params = {} if since is None else {"since": whole_seconds(since)}
        found = await self.get(f"/repos/{owner}/{repo}/issues/{number}/comments", params=params)
        return sorted((Comment.of(item) for item in found or ()), key=lambda comment: comment.id)

    async def timeline(self, owner: str, repo: str, number: int, *, since: float | None = None) -> list[Happening]:
        """Return what happened to an issue, oldest first; `since` as for `comments`."""
        params = {} if since is None else {"since": whole_seconds(since)}
        found = await self.get_pages(f"/repos/{owner}/{repo}/issues/{number}/timeline", params=params)
        return [Happening.of(item) for item in found]

    async def create_comment(self, owner: str, repo: str, number: int, body: str) -> Comment:
        """Comment on an issue or a pull request."""

        async def post() -> Comment:
            path = f"/repos/{owner}/{repo}/issues/{number}/comments"
            return Comment.of(read_json(await self.request("POST", path, json={"body": body}), SERVICE))

        async def find() -> Comment | None:
            author = (await self.me()).login
            for comment in reversed(await self.comments(owner, repo, number)):
                if (comment.author, comment.body) == (author, body) and not self.is_mine("comment", comment.id):
                    return comment
            return None

        return await self.create("comment", post, find, lambda comment: comment.id)

    async def branch(self, owner: str, repo: str, name: str) -> Branch:
        """Return a branch; ServiceError 404 when there is none of that name."""
        return Branch.of(await self.get(f"/repos/{owner}/{repo}/branches/{name}"))

    async def branches(self, owner: str, repo: str) -> list[Branch]:
        """Return all branches."""
        return [Branch.of(item) for item in await self.get_pages(f"/repos/{owner}/{repo}/branches")]

    async def notifications(self, *, since: float | None = None, all: bool = False) -> list[Thread]:
        """Return the account's unread threads (with `all`: the read ones as well), most recently changed first.

        `since` is inclusive and of whole seconds. Rows that change while pages are read may be skipped or repeated.
        """
        params: dict[str, Any] = {"all": "true"} if all else {}
        if since is not None:
            params["since"] = whole_seconds(since)
        return [Thread.of(item) for item in await self.get_pages("/notifications", params=params)]

    async def mark_read(self, thread_id: int) -> None:
        """Mark one thread read; ServiceError 404 when it is not this account's."""
        await self.request("PATCH", f"/notifications/threads/{thread_id}", idempotent=True)
