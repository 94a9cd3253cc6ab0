"""Branch protection rules and what they say about one branch and one user."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

from agensh.embedded.forge.store.database import Row, Tx

DEFAULTS: dict[str, Any] = {
    "enable_push": False,
    "enable_push_whitelist": False,
    "push_whitelist_usernames": [],
    "push_whitelist_teams": [],
    "push_whitelist_deploy_keys": False,
    "enable_force_push": False,
    "enable_force_push_allowlist": False,
    "force_push_allowlist_usernames": [],
    "force_push_allowlist_teams": [],
    "force_push_allowlist_deploy_keys": False,
    "enable_merge_whitelist": False,
    "merge_whitelist_usernames": [],
    "merge_whitelist_teams": [],
    "enable_bypass_allowlist": False,
    "bypass_allowlist_usernames": [],
    "bypass_allowlist_teams": [],
    "enable_status_check": False,
    "status_check_contexts": [],
    "required_approvals": 0,
    "enable_approvals_whitelist": False,
    "approvals_whitelist_username": [],
    "approvals_whitelist_teams": [],
    "block_on_rejected_reviews": False,
    "block_on_official_review_requests": False,
    "block_on_outdated_branch": False,
    "dismiss_stale_approvals": False,
    "ignore_stale_approvals": False,
    "require_signed_commits": False,
    "protected_file_patterns": "",
    "unprotected_file_patterns": "",
    "block_admin_merge_override": False,
}


class Rule:
    """One protection rule."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.name: str = row["rule_name"]
        self.values: dict[str, Any] = DEFAULTS | json.loads(row["rule"])

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def _listed(self, key: str, user: Row) -> bool:
        return user["lower_name"] in {name.lower() for name in self.values[key]}

    def may_push(self, user: Row) -> bool:
        """Say whether a writer may push to the branch directly."""
        if not self["enable_push"]:
            return False
        return not self["enable_push_whitelist"] or self._listed("push_whitelist_usernames", user)

    def may_force_push(self, user: Row) -> bool:
        """Say whether a writer may rewrite the branch."""
        if not self["enable_force_push"] or not self.may_push(user):
            return False
        return not self["enable_force_push_allowlist"] or self._listed("force_push_allowlist_usernames", user)

    def may_merge(self, user: Row) -> bool:
        """Say whether a writer may merge into the branch."""
        return not self["enable_merge_whitelist"] or self._listed("merge_whitelist_usernames", user)

    def may_approve(self, user: Row) -> bool:
        """Say whether a writer's approval is official."""
        return not self["enable_approvals_whitelist"] or self._listed("approvals_whitelist_username", user)

    def may_bypass(self, user: Row) -> bool:
        """Say whether the user may merge although the rule's conditions are not met."""
        if self["enable_bypass_allowlist"] and self._listed("bypass_allowlist_usernames", user):
            return True
        return bool(user["is_admin"]) and not self["block_admin_merge_override"]


def rules(tx: Tx, repo_id: int) -> list[Rule]:
    """Return a repository's rules, the first that matches a branch being the one in force."""
    rows = tx.all("SELECT * FROM protections WHERE repo_id = ? ORDER BY priority, id", repo_id)
    return [Rule(row) for row in rows]


def match(rules_: list[Rule], branch: str) -> Rule | None:
    """Return the rule in force for a branch: an exact name before a pattern."""
    for rule in rules_:
        if rule.name == branch:
            return rule
    return next((rule for rule in rules_ if pattern_matches(rule.name, branch)), None)


def rule_for(tx: Tx, repo_id: int, branch: str) -> Rule | None:
    """Return the rule in force for a branch of a repository."""
    return match(rules(tx, repo_id), branch)


def pattern_matches(pattern: str, name: str) -> bool:
    """Match a glob in which `*` stops at a slash and `**` does not; braces are not special."""
    if not any(c in pattern for c in "*?["):
        return False
    parts = re.split(r"(\*\*|\*|\?|\[[^\]]*\])", pattern)
    expression = ""
    for part in parts:
        if part == "**":
            expression += ".*"
        elif part == "*":
            expression += "[^/]*"
        elif part == "?":
            expression += "[^/]"
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            expression += fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
        else:
            expression += re.escape(part)
    return re.fullmatch(expression, name) is not None
