"""Commit statuses: the newest of each context counts."""

from __future__ import annotations

from agensh.embedded.forge.store.database import Row, Tx
from agensh.embedded.forge.store.protections import pattern_matches

STATES = ("error", "failure", "pending", "warning", "success", "skipped")
"""The worst first."""


def latest(tx: Tx, repo_id: int, sha: str) -> list[Row]:
    """Return the newest status of each context of a commit."""
    return tx.all(
        "SELECT * FROM statuses WHERE id IN "
        "(SELECT max(id) FROM statuses WHERE repo_id = ? AND sha = ? GROUP BY context) ORDER BY id",
        repo_id, sha,
    )  # fmt: skip


def combined(rows: list[Row]) -> str:
    """Return the worst state of some statuses, as Gitea combines them: pending when there are none."""
    states = {row["state"] for row in rows}
    for bad in ("error", "failure"):
        if bad in states:
            return "failure"
    if "pending" in states or not states:
        return "pending"
    return "success" if states <= {"success", "skipped", "warning"} else "pending"


def required(tx: Tx, repo_id: int, sha: str, contexts: list[str]) -> str:
    """Return the combined state of the contexts a rule requires (names or patterns); pending when one is missing."""
    rows = latest(tx, repo_id, sha)
    if not contexts:
        return combined(rows)
    chosen: list[Row] = []
    for context in contexts:
        found = [row for row in rows if row["context"] == context or pattern_matches(context, row["context"])]
        if not found:
            return "pending"
        chosen += found
    return combined(chosen)
