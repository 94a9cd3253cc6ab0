"""What a token may be used for: `read:` or `write:` of an area, as Gitea divides its API into areas."""

from __future__ import annotations

import json

from agensh.embedded.forge.errors import forbidden
from agensh.embedded.forge.store.database import Row

_ISSUE_PARTS = {"issues", "labels", "milestones"}


def areas(path: str) -> list[str]:
    """Return the areas that an API path (after /api/v1/) belongs to; none for what any token may read."""
    parts = path.split("/")
    if parts[0] in {"admin", "notifications"}:
        return [parts[0].removesuffix("s")]
    if parts[0] == "repos" and len(parts) > 3:
        if parts[3] in _ISSUE_PARTS:
            return ["issue"]
        return ["notification"] if parts[3] == "notifications" else ["repository"]
    if parts[:2] == ["repos", "issues"]:
        return ["issue"]
    if parts[0] in {"user", "users"}:
        return ["user", "repository"] if parts[-1] == "repos" else ["user"]
    return ["repository"] if parts[0] == "repos" else []


def check(token: Row, method: str, path: str) -> None:
    """Refuse (403) what the token's scopes do not cover; write covers read."""
    require(token, areas(path), write=method not in {"GET", "HEAD"})


def require(token: Row, wanted: list[str], *, write: bool) -> None:
    """Refuse (403) unless the token covers all of the areas."""
    have = set(json.loads(token["scopes"]))
    if "all" in have:
        return
    level = "write" if write else "read"
    for area in wanted:
        if f"write:{area}" not in have and f"{level}:{area}" not in have:
            raise forbidden(f"token does not have at least one of required scope(s), required=[{level}:{area}]")


def broader(token: Row, scopes: list[str]) -> bool:
    """Say whether some scopes exceed those of a token."""
    have = set(json.loads(token["scopes"]))
    if "all" in have:
        return False
    return any(s not in have and s.replace("read:", "write:", 1) not in have for s in scopes)
