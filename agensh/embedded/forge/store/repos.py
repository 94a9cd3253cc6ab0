"""Repositories, collaborators, watchers, and who may do what."""

from __future__ import annotations

import json
import re
from enum import IntEnum
from typing import Any

from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Row, Tx

NAME = re.compile(r"[A-Za-z0-9._-]+")
OPTIONS: dict[str, Any] = {
    "has_issues": True,
    "has_pull_requests": True,
    "has_wiki": False,
    "has_projects": False,
    "has_releases": False,
    "has_packages": False,
    "has_actions": False,
    "ignore_whitespace_conflicts": False,
    "allow_merge_commits": True,
    "allow_rebase": True,
    "allow_rebase_explicit": True,
    "allow_squash_merge": True,
    "allow_fast_forward_only_merge": True,
    "allow_rebase_update": True,
    "allow_merge_update": True,
    "allow_manual_merge": False,
    "autodetect_manual_merge": False,
    "default_delete_branch_after_merge": False,
    "default_merge_style": "merge",
    "default_update_style": "merge",
    "default_allow_maintainer_edit": False,
    "template": False,
}


class Mode(IntEnum):
    """What a user may do in a repository."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3
    OWNER = 4


def mode_of(tx: Tx, user: Row, repo: Row) -> Mode:
    """Return a user's rights in a repository."""
    if user["is_admin"] or repo["owner_id"] == user["id"]:
        return Mode.OWNER
    mode = tx.value("SELECT mode FROM collaborators WHERE repo_id = ? AND user_id = ?", repo["id"], user["id"])
    if mode is not None:
        return Mode(mode)
    return Mode.NONE if repo["private"] or user["restricted"] else Mode.READ


def find(tx: Tx, owner: str, name: str) -> Row | None:
    """Return the repository, whoever asks."""
    return tx.one(
        "SELECT r.* FROM repos r JOIN users u ON u.id = r.owner_id WHERE u.lower_name = ? AND r.lower_name = ?",
        owner.lower(),
        name.lower(),
    )


def require(tx: Tx, viewer: Row, owner: str, name: str, need: Mode = Mode.READ) -> Row:
    """Return the repository if the viewer has the right: 404 when it may not be seen, 403 when more is needed."""
    repo = find(tx, owner, name)
    if repo is None:
        raise not_found()
    have = mode_of(tx, viewer, repo)
    if have is Mode.NONE:
        raise not_found()
    if have < need:
        if need >= Mode.ADMIN:
            raise forbidden("user should be an owner or a collaborator with admin write of a repository")
        raise forbidden("user should have a permission to write to a repo")
    if need >= Mode.WRITE and repo["archived"]:
        raise ApiError(423, f"{owner}/{name} is archived")
    return repo


def options(repo: Row) -> dict[str, Any]:
    """Return the repository's options over the defaults."""
    stored: dict[str, Any] = json.loads(repo["options"])
    return OPTIONS | stored


def check_new(tx: Tx, owner: Row, name: str) -> None:
    """Refuse a name that is not allowed (422) or taken (409)."""
    if not NAME.fullmatch(name) or len(name) > 100 or name in {".", "..", "-"} or name.endswith((".git", ".wiki")):
        raise unprocessable(f"repository name is reserved or invalid [name: {name}]")
    if tx.value("SELECT 1 FROM repos WHERE owner_id = ? AND lower_name = ?", owner["id"], name.lower()):
        raise ApiError(409, "The repository with the same name already exists.")


def create(
    tx: Tx, now: int, owner: Row, name: str, *, description: str, private: bool, default_branch: str, watch: bool
) -> Row:
    """Insert a repository; 422 or 409 for its name."""
    check_new(tx, owner, name)
    repo_id = tx.insert(
        "repos", owner_id=owner["id"], name=name, lower_name=name.lower(), description=description,
        private=private, default_branch=default_branch, created=now, updated=now,
    )  # fmt: skip
    if watch:
        tx.insert("watches", repo_id=repo_id, user_id=owner["id"], created=now)
    return by_id(tx, repo_id)


def by_id(tx: Tx, repo_id: int) -> Row:
    """Return a repository by its id; 404."""
    repo = tx.one("SELECT * FROM repos WHERE id = ?", repo_id)
    if repo is None:
        raise not_found()
    return repo


def set_collaborator(tx: Tx, repo: Row, name: str, permission: str) -> None:
    """Give a user rights (read, write, admin; empty means write); 422 for an unknown user or word."""
    user = users.by_name(tx, name)
    if user is None:
        raise unprocessable(f"user does not exist [name: {name}]")
    modes = {"": Mode.WRITE, "read": Mode.READ, "write": Mode.WRITE, "admin": Mode.ADMIN}
    if permission not in modes:
        raise unprocessable(f"permission: {permission!r} is not known; allowed are read, write, admin")
    if user["id"] == repo["owner_id"]:
        return
    tx.run(
        "INSERT INTO collaborators (repo_id, user_id, mode) VALUES (?, ?, ?) "
        "ON CONFLICT (repo_id, user_id) DO UPDATE SET mode = excluded.mode",
        repo["id"], user["id"], modes[permission],
    )  # fmt: skip


def next_number(tx: Tx, repo: Row) -> int:
    """Allot the next issue or pull request number of a repository."""
    tx.run("UPDATE repos SET last_index = last_index + 1 WHERE id = ?", repo["id"])
    number: int = tx.value("SELECT last_index FROM repos WHERE id = ?", repo["id"])
    return number
