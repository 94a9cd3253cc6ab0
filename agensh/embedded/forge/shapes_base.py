"""The parts of Gitea's JSON that the other shapes stand on: users, repositories, labels, times."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agensh.clock import utc
from agensh.embedded.forge.git import has_branches
from agensh.embedded.forge.store import repos
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.repos import Mode

Json = dict[str, Any]
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


class BaseShapes:
    """What all answers share, for one viewer; `base` is the forge's address without a slash at its end."""

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

    def thread(self, issue: Row) -> Json:
        """What issues and pull requests have in common."""
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


def permission(mode: Mode) -> Json:
    """What a mode allows, as the API says it."""
    return {"admin": mode >= Mode.ADMIN, "push": mode >= Mode.WRITE, "pull": mode >= Mode.READ}


def quoted(path: str) -> str:
    """A path as it stands in an address."""
    return quote(path, safe="/")
