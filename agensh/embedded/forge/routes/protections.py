"""Branch protection rules."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from agensh.embedded.forge.errors import forbidden, not_found, unprocessable
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import protections as store
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.protections import Rule
from agensh.embedded.forge.store.repos import Mode

router = APIRouter(prefix="/api/v1")


class RuleChange(BaseModel):
    model_config = ConfigDict(extra="allow")

    rule_name: str = ""
    branch_name: str = ""
    priority: int | None = None


def _values(tx: Tx, new: RuleChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in (new.model_extra or {}).items():
        if key not in store.DEFAULTS or value is None:
            continue
        if type(value) is not type(store.DEFAULTS[key]):
            raise unprocessable(f"{key}: {value!r} is not a {type(store.DEFAULTS[key]).__name__}")
        if isinstance(value, list):
            if key.endswith(("_usernames", "_username")):
                for name in value:
                    if users.by_name(tx, str(name)) is None:
                        raise unprocessable(f"user does not exist [name: {name}]")
            if key.endswith("_teams") and value:
                raise unprocessable(f"{key}: this forge has no teams; name the users")
        if key == "require_signed_commits" and value:
            raise unprocessable("require_signed_commits: this forge does not check signatures")
        if key.endswith("_file_patterns") and value:
            raise unprocessable(f"{key}: this forge protects branches, not files")
        values[key] = value
    return values


def _find(tx: Tx, repo: Row, rule_name: str) -> Rule:
    row = tx.one("SELECT * FROM protections WHERE repo_id = ? AND rule_name = ?", repo["id"], rule_name)
    if row is None:
        raise not_found()
    return Rule(row)


@router.get("/repos/{owner}/{name}/branch_protections")
async def listing(call: ApiCall, owner: str, name: str) -> list[Json]:
    """All rules, the first in force first."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)
    return await call.read(lambda tx: [call.shapes(tx).protection(rule) for rule in store.rules(tx, repo["id"])])


@router.post("/repos/{owner}/{name}/branch_protections", status_code=201)
async def create(call: ApiCall, owner: str, name: str, new: RuleChange) -> Json:
    """Protect a branch or the branches of a pattern; 403 when the rule exists, as in Gitea."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)
    rule_name = new.rule_name or new.branch_name
    if not rule_name:
        raise unprocessable("both rule_name and branch_name are empty")
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        if tx.value("SELECT 1 FROM protections WHERE repo_id = ? AND rule_name = ?", repo["id"], rule_name):
            raise forbidden("Branch protection already exist")
        values = _values(tx, new)
        last = tx.value("SELECT coalesce(max(priority), 0) FROM protections WHERE repo_id = ?", repo["id"])
        tx.insert(
            "protections", repo_id=repo["id"], rule_name=rule_name, priority=new.priority or last + 1,
            rule=json.dumps(values), created=now, updated=now,
        )  # fmt: skip
        return call.shapes(tx).protection(_find(tx, repo, rule_name))

    return await call.write(insert)


@router.get("/repos/{owner}/{name}/branch_protections/{rule_name:path}")
async def get(call: ApiCall, owner: str, name: str, rule_name: str) -> Json:
    """A rule."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)
    return await call.read(lambda tx: call.shapes(tx).protection(_find(tx, repo, rule_name)))


@router.patch("/repos/{owner}/{name}/branch_protections/{rule_name:path}")
async def edit(call: ApiCall, owner: str, name: str, rule_name: str, new: RuleChange) -> Json:
    """Change a rule."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)

    def save(tx: Tx) -> Json:
        rule = _find(tx, repo, rule_name)
        columns: dict[str, Any] = {"rule": json.dumps(json.loads(rule.row["rule"]) | _values(tx, new))}
        if new.priority is not None:
            columns["priority"] = new.priority
        tx.update("protections", "id", rule.row["id"], updated=call.forge.now(), **columns)
        return call.shapes(tx).protection(_find(tx, repo, rule_name))

    return await call.write(save)


@router.delete("/repos/{owner}/{name}/branch_protections/{rule_name:path}", status_code=204)
async def delete(call: ApiCall, owner: str, name: str, rule_name: str) -> None:
    """Remove a rule."""
    repo, _ = await call.repo(owner, name, Mode.ADMIN)

    def remove(tx: Tx) -> None:
        tx.run("DELETE FROM protections WHERE id = ?", _find(tx, repo, rule_name).row["id"])

    await call.write(remove)
