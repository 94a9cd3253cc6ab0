"""The JSON of Gitea 1.27: every field its API description names, built from rows.

A `Shapes` lives as long as one transaction and remembers the users and repositories it met.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agensh.clock import utc
from agensh.embedded.forge.git import branch_tip, has_branches
from agensh.embedded.forge.store import repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.notifications import work_in_progress
from agensh.embedded.forge.store.protections import Rule
from agensh.embedded.forge.store.repos import Mode

Json = dict[str, Any]
MERGEABLE = {"mergeable", "empty"}
"""States of the conflict check that let a pull request be merged."""
ZERO_TIME = "0001-01-01T00:00:00Z"


def stamp(seconds: int | None) -> str | None:
    """Return whole seconds as RFC 3339 UTC, or None."""
    return None if seconds is None else utc(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str | None, name: str) -> int | None:
    """Return an RFC 3339 time as whole seconds; ValueError names the field."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text.replace(" ", "+"))  # a '+' of the zone may have been read as a blank
    except ValueError as error:
        raise ValueError(f"{name}: {text!r} is not an RFC 3339 time such as 2026-01-31T09:30:00Z") from error
    if at.tzinfo is None:
        raise ValueError(f"{name}: {text!r} has no time zone; write for example 2026-01-31T09:30:00Z")
    return int(at.timestamp())


class Shapes:
    """Builds answers for one viewer; `base` is the forge's address without a slash at its end."""

    def __init__(self, tx: Tx, base: str, data: Path, viewer: Row) -> None:
        self.tx = tx
        self.base = base
        self.viewer = viewer
        self._data = data
        self._users: dict[int, Json] = {}
        self._repos: dict[int, Json] = {}
        self._rows: dict[int, Row] = {}

    def user(self, user_id: int) -> Json:
        """A user; the e-mail is hidden from others as Gitea does by default (noreply address)."""
        if user_id not in self._users:
            row = self.tx.one("SELECT * FROM users WHERE id = ?", user_id)
            self._users[user_id] = self.user_row(row) if row is not None else self._ghost()
        return self._users[user_id]

    def user_row(self, row: Row) -> Json:
        name = row["name"]
        return {
            "id": row["id"],
            "login": name,
            "login_name": "",
            "source_id": 0,
            "full_name": row["full_name"],
            "email": row["email"],
            "avatar_url": f"{self.base}/avatars/{row['id']}",
            "html_url": f"{self.base}/{name}",
            "language": "",
            "is_admin": bool(row["is_admin"]),
            "last_login": stamp(row["last_login"]),
            "created": stamp(row["created"]),
            "restricted": bool(row["restricted"]),
            "active": True,
            "prohibit_login": bool(row["prohibit_login"]),
            "location": "",
            "website": "",
            "description": "",
            "visibility": row["visibility"],
            "followers_count": 0,
            "following_count": 0,
            "starred_repos_count": 0,
            "username": name,
        }

    def _ghost(self) -> Json:
        return {"id": -1, "login": "Ghost", "full_name": "", "email": "", "username": "Ghost", "active": False}

    def repo_row(self, repo_id: int) -> Row:
        """The row of a repository."""
        if repo_id not in self._rows:
            self._rows[repo_id] = repos.by_id(self.tx, repo_id)
        return self._rows[repo_id]

    def full_name(self, repo_id: int) -> str:
        """owner/name of a repository."""
        repo = self.repo_row(repo_id)
        return f"{self.user(repo['owner_id'])['login']}/{repo['name']}"

    def path(self, repo_id: int) -> Path:
        """Where the bare repository is."""
        return self._data / "repos" / f"{self.full_name(repo_id)}.git"

    def api(self, repo_id: int) -> str:
        """The API address of a repository."""
        return f"{self.base}/api/v1/repos/{self.full_name(repo_id)}"

    def html(self, repo_id: int) -> str:
        """The web address of a repository."""
        return f"{self.base}/{self.full_name(repo_id)}"

    def repo(self, repo_id: int) -> Json:
        """A repository, with the viewer's permissions."""
        if repo_id in self._repos:
            return self._repos[repo_id]
        row = self.repo_row(repo_id)
        mode = repos.mode_of(self.tx, self.viewer, row)
        options = repos.options(row)
        html, full = self.html(repo_id), self.full_name(repo_id)
        count = "SELECT count(*) FROM issues WHERE repo_id = ? AND closed = 0 AND is_pull = ?"
        shape: Json = {
            "id": row["id"],
            "owner": self.user(row["owner_id"]),
            "name": row["name"],
            "full_name": full,
            "description": row["description"],
            "empty": not has_branches(self.path(repo_id)),
            "private": bool(row["private"]),
            "fork": False,
            "parent": None,
            "mirror": False,
            "size": 0,
            "language": "",
            "languages_url": f"{self.api(repo_id)}/languages",
            "html_url": html,
            "url": self.api(repo_id),
            "link": "",
            "ssh_url": f"ssh://git@localhost/{full}.git",
            "clone_url": f"{html}.git",
            "original_url": "",
            "website": row["website"],
            "stars_count": 0,
            "forks_count": 0,
            "watchers_count": self.tx.value("SELECT count(*) FROM watches WHERE repo_id = ? AND ignored = 0", repo_id),
            "branch_count": 0,
            "open_issues_count": self.tx.value(count, repo_id, 0),
            "open_pr_counter": self.tx.value(count, repo_id, 1),
            "release_counter": 0,
            "default_branch": row["default_branch"],
            "default_target_branch": row["default_branch"],
            "archived": bool(row["archived"]),
            "created_at": stamp(row["created"]),
            "updated_at": stamp(row["updated"]),
            "archived_at": "1970-01-01T00:00:00Z",
            "permissions": permission(mode),
            "has_code": True,
            "internal_tracker": {
                "enable_time_tracker": False,
                "allow_only_contributors_to_track_time": True,
                "enable_issue_dependencies": False,
            },
            "external_tracker": None,
            "external_wiki": None,
            "projects_mode": "all",
            "avatar_url": "",
            "internal": False,
            "mirror_interval": "",
            "object_format_name": "sha1",
            "mirror_updated": ZERO_TIME,
            "repo_transfer": None,
            "topics": [],
            "licenses": [],
        }
        shape |= options
        self._repos[repo_id] = shape
        return shape

    def label(self, row: Row) -> Json:
        """A label."""
        return {
            "id": row["id"],
            "name": row["name"],
            "exclusive": bool(row["exclusive"]),
            "is_archived": bool(row["is_archived"]),
            "color": row["color"],
            "description": row["description"],
            "url": f"{self.api(row['repo_id'])}/labels/{row['id']}",
        }

    def labels(self, issue_id: int) -> list[Json]:
        """The labels of an issue, by name."""
        sql = "SELECT l.* FROM labels l JOIN issue_labels i ON i.label_id = l.id WHERE i.issue_id = ? ORDER BY l.name"
        return [self.label(row) for row in self.tx.all(sql, issue_id)]

    def assignees(self, issue_id: int) -> list[Json] | None:
        """The assignees of an issue; Gitea says null for none."""
        rows = self.tx.all("SELECT user_id FROM issue_assignees WHERE issue_id = ? ORDER BY user_id", issue_id)
        return [self.user(row["user_id"]) for row in rows] or None

    def _thread(self, issue: Row) -> Json:
        assignees = self.assignees(issue["id"])
        return {
            "id": issue["id"],
            "number": issue["number"],
            "user": self.user(issue["poster_id"]),
            "title": issue["title"],
            "body": issue["body"],
            "labels": self.labels(issue["id"]),
            "milestone": None,
            "assignee": assignees[0] if assignees else None,
            "assignees": assignees,
            "state": "closed" if issue["closed"] else "open",
            "is_locked": bool(issue["is_locked"]),
            "comments": issue["comments"],
            "created_at": stamp(issue["created"]),
            "updated_at": stamp(issue["updated"]),
            "closed_at": stamp(issue["closed_at"]),
            "due_date": stamp(issue["due_date"]),
            "pin_order": 0,
            "content_version": issue["content_version"],
        }

    def issue_html(self, issue: Row) -> str:
        """The web address of an issue or pull request."""
        return f"{self.html(issue['repo_id'])}/{'pulls' if issue['is_pull'] else 'issues'}/{issue['number']}"

    def issue(self, issue: Row) -> Json:
        """An issue, or a pull request seen as one."""
        repo = self.repo_row(issue["repo_id"])
        shape = self._thread(issue) | {
            "url": f"{self.api(issue['repo_id'])}/issues/{issue['number']}",
            "html_url": self.issue_html(issue),
            "original_author": "",
            "original_author_id": 0,
            "ref": issue["ref"],
            "assets": [],
            "projects": [],
            "time_estimate": 0,
            "pull_request": None,
            "repository": {
                "id": repo["id"],
                "name": repo["name"],
                "owner": self.user(repo["owner_id"])["login"],
                "full_name": self.full_name(repo["id"]),
            },
        }
        if issue["is_pull"]:
            pull = self.tx.one("SELECT * FROM pulls WHERE issue_id = ?", issue["id"])
            assert pull is not None
            shape["pull_request"] = {
                "merged": bool(pull["merged"]),
                "merged_at": stamp(pull["merged_at"]),
                "draft": work_in_progress(issue["title"]),
                "html_url": self.issue_html(issue),
            }
        return shape

    def comment(self, row: Row, issue: Row) -> Json:
        """A comment on an issue or pull request."""
        page = self.issue_html(issue)
        return {
            "id": row["id"],
            "html_url": f"{page}#issuecomment-{row['id']}",
            "pull_request_url": page if issue["is_pull"] else "",
            "issue_url": "" if issue["is_pull"] else page,
            "user": self.user(row["poster_id"]),
            "original_author": "",
            "original_author_id": 0,
            "body": row["body"],
            "assets": [],
            "created_at": stamp(row["created"]),
            "updated_at": stamp(row["updated"]),
        }

    def pull(self, issue: Row, pull: Row) -> Json:
        """A pull request; `mergeable` is false too while the check has not been made."""
        repo_id = issue["repo_id"]
        path, page = self.path(repo_id), self.issue_html(issue)
        draft = work_in_progress(issue["title"])
        base_sha = branch_tip(path, pull["base_branch"]) or pull["merge_base"]
        head_sha = pull["head_sha"]
        if not issue["closed"]:
            head_sha = branch_tip(path, pull["head_branch"]) or head_sha
        requested = self.tx.all(
            "SELECT DISTINCT user_id FROM reviews WHERE issue_id = ? AND state = 'REQUEST_REVIEW'", issue["id"]
        )
        return self._thread(issue) | {
            "url": page,
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "requested_reviewers": [self.user(row["user_id"]) for row in requested],
            "requested_reviewers_teams": [],
            "draft": draft,
            "review_comments": self.tx.value(
                "SELECT count(*) FROM review_comments c JOIN reviews r ON r.id = c.review_id WHERE r.issue_id = ?",
                issue["id"],
            ),
            "additions": pull["additions"],
            "deletions": pull["deletions"],
            "changed_files": pull["changed_files"],
            "mergeable": pull["status"] in MERGEABLE and not draft,
            "merged": bool(pull["merged"]),
            "merged_at": stamp(pull["merged_at"]),
            "merge_commit_sha": pull["merged_sha"],
            "merged_by": self.user(pull["merged_by"]) if pull["merged_by"] else None,
            "allow_maintainer_edit": bool(pull["allow_maintainer_edit"]),
            "base": self._side(repo_id, pull["base_branch"], pull["base_branch"], base_sha),
            "head": self._side(
                repo_id,
                pull["head_branch"],
                pull["head_branch"] if branch_tip(path, pull["head_branch"]) else f"refs/pull/{issue['number']}/head",
                head_sha,
            ),
            "merge_base": pull["merge_base"],
        }

    def _side(self, repo_id: int, label: str, ref: str, sha: str) -> Json:
        return {"label": label, "ref": ref, "sha": sha, "repo_id": repo_id, "repo": self.repo(repo_id)}

    def protection(self, rule: Rule) -> Json:
        """A branch protection rule."""
        row = rule.row
        return rule.values | {
            "branch_name": "" if any(c in rule.name for c in "*?[") else rule.name,
            "rule_name": rule.name,
            "priority": row["priority"],
            "created_at": stamp(row["created"]),
            "updated_at": stamp(row["updated"]),
        }

    def status(self, row: Row) -> Json:
        """A commit status."""
        return {
            "id": row["id"],
            "status": row["state"],
            "target_url": row["target_url"],
            "description": row["description"],
            "url": f"{self.api(row['repo_id'])}/statuses/{row['sha']}",
            "context": row["context"],
            "creator": self.user(row["creator_id"]),
            "created_at": stamp(row["created"]),
            "updated_at": stamp(row["updated"]),
        }

    def review(self, row: Row, issue: Row) -> Json:
        """A review, or a request for one."""
        page = self.issue_html(issue)
        comments = self.tx.value("SELECT count(*) FROM review_comments WHERE review_id = ?", row["id"])
        return {
            "id": row["id"],
            "user": self.user(row["user_id"]),
            "team": None,
            "state": row["state"],
            "body": row["body"],
            "commit_id": row["commit_id"],
            "stale": bool(row["stale"]),
            "official": bool(row["official"]),
            "dismissed": bool(row["dismissed"]),
            "comments_count": comments,
            "submitted_at": stamp(row["created"]),
            "updated_at": stamp(row["updated"]),
            "html_url": f"{page}#pullrequestreview-{row['id']}",
            "pull_request_url": page,
        }

    def notification(self, row: Row) -> Json:
        """A notification thread: no reason, no actor; `latest_comment_url` is the newest comment, not the cause."""
        issue = self.tx.one("SELECT * FROM issues WHERE id = ?", row["issue_id"])
        shape: Json = {
            "id": row["id"],
            "repository": None,
            "subject": None,
            "unread": row["status"] != "read",
            "pinned": row["status"] == "pinned",
            "updated_at": stamp(row["updated"]),
            "url": f"{self.base}/api/v1/notifications/threads/{row['id']}",
        }
        if issue is None or repos.mode_of(self.tx, self.viewer, self.repo_row(row["repo_id"])) is Mode.NONE:
            return shape
        state = "closed" if issue["closed"] else "open"
        kind = "Issue"
        if issue["is_pull"]:
            kind = "Pull"
            if self.tx.value("SELECT merged FROM pulls WHERE issue_id = ?", issue["id"]):
                state = "merged"
        last = self.tx.one(
            "SELECT id FROM comments WHERE issue_id = ? AND kind = 'comment' ORDER BY id DESC LIMIT 1", issue["id"]
        )
        api, page = self.api(row["repo_id"]), self.issue_html(issue)
        shape["repository"] = self.repo(row["repo_id"])
        shape["subject"] = {
            "title": issue["title"],
            "url": f"{api}/{'pulls' if issue['is_pull'] else 'issues'}/{issue['number']}",
            "html_url": page,
            "latest_comment_url": f"{api}/issues/comments/{last['id']}" if last else "",
            "latest_comment_html_url": f"{page}#issuecomment-{last['id']}" if last else "",
            "type": kind,
            "state": state,
        }
        return shape

    def token(self, row: Row, secret: str = "") -> Json:
        """An access token; `sha1`, the token itself, is shown once."""
        return {
            "id": row["id"],
            "name": row["name"],
            "sha1": secret,
            "token_last_eight": row["last_eight"],
            "scopes": json.loads(row["scopes"]),
            "created_at": stamp(row["created"]),
            "last_used_at": stamp(row["last_used"] or row["created"]),
        }


def permission(mode: Mode) -> Json:
    """What a mode allows, as the API says it."""
    return {"admin": mode >= Mode.ADMIN, "push": mode >= Mode.WRITE, "pull": mode >= Mode.READ}


def quoted(path: str) -> str:
    """A path as it stands in an address."""
    return quote(path, safe="/")
