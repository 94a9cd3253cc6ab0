"""The JSON of Gitea 1.27: every field its API description names, built from rows.

A `Shapes` lives as long as one transaction and remembers the users and repositories it met.
"""

from __future__ import annotations

import json

from agensh.embedded.forge.git import branch_tip
from agensh.embedded.forge.shapes_base import BaseShapes, Json, stamp
from agensh.embedded.forge.store import repos
from agensh.embedded.forge.store.database import Row
from agensh.embedded.forge.store.notifications import work_in_progress
from agensh.embedded.forge.store.protections import Rule
from agensh.embedded.forge.store.repos import Mode

MERGEABLE = {"mergeable", "empty"}
"""States of the conflict check that let a pull request be merged."""


class Shapes(BaseShapes):
    """Builds answers for one viewer."""

    def issue(self, issue: Row) -> Json:
        """An issue, or a pull request seen as one."""
        repo = self.repo_row(issue["repo_id"])
        shape = self.thread(issue) | {
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
        return self.thread(issue) | {
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
