"""Can a pull request be merged? Checked in the background by a bounded pool, the viewed ones first.

States of a pull request: `checking` (not known), `mergeable`, `conflict`, `empty` (nothing to merge) and `error`. A
check that finds the branches moved while it ran leaves `checking` and goes round again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agensh.embedded.forge import history
from agensh.embedded.forge.git import EMPTY_TREE, GitError, branch_tip
from agensh.embedded.forge.store.database import Row, Tx

if TYPE_CHECKING:
    from agensh.embedded.forge.state import Forge

log = logging.getLogger(__name__)
VIEWED, MOVED = 0, 1  # priorities in the queue
UNKNOWN = {"checking", "error"}  # a check that failed may have met a git that was killed: whoever looks asks again


@dataclass(frozen=True, slots=True)
class Result:
    """What a check found, and for which tips."""

    status: str
    head: str
    base: str
    merge_base: str
    conflicts: list[str]
    totals: tuple[int, int, int]
    behind: int


class Checker:
    """The queue of pull requests to check, each in it once, and the workers."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._queue: asyncio.PriorityQueue[tuple[int, int, int]] = asyncio.PriorityQueue()
        self._waiting: dict[int, int] = {}
        self._count = 0

    def want(self, issue_id: int, priority: int = MOVED) -> None:
        """Queue a check; one that waits already is at most moved forward."""
        if self._waiting.get(issue_id, MOVED + 1) <= priority:
            return
        self._waiting[issue_id] = priority
        self._count += 1
        self._queue.put_nowait((priority, self._count, issue_id))

    async def run(self) -> None:
        """Work the queue until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._forge.settings.check_workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            _, _, issue_id = await self._queue.get()
            if self._waiting.pop(issue_id, None) is None:
                continue  # it was moved forward, and this is its old place
            try:
                await self.check(issue_id)
            except (GitError, OSError) as error:
                log.error("conflict check failed", extra={"pull": issue_id, "error": str(error)})
                await self._forge.db.write(partial(_failed, issue_id=issue_id))

    async def check(self, issue_id: int) -> None:
        """Check one open pull request now and write what was found, unless the branches moved meanwhile."""
        found = await self._forge.db.read(lambda tx: _open_pull(tx, self._forge.data, issue_id))
        if found is None:
            return
        pull, path = found
        result = await examine(self._forge, path, pull["head_branch"], pull["base_branch"])
        if result is None:
            return

        def save(tx: Tx) -> bool:
            now = _open_pull(tx, self._forge.data, issue_id)
            if now is None:
                return True
            tips = branch_tip(path, now[0]["head_branch"]), branch_tip(path, now[0]["base_branch"])
            if tips != (result.head, result.base):
                return False
            save_result(tx, issue_id, result)
            return True

        if not await self._forge.db.write(save):
            self.want(issue_id)


async def examine(forge: Forge, path: Path, head_branch: str, base_branch: str) -> Result | None:
    """Compare two branches; None when one of them is gone."""
    head, base = branch_tip(path, head_branch), branch_tip(path, base_branch)
    if head is None or base is None:
        return None
    git = forge.git
    common = await git.merge_base(path, base, head)
    totals = await history.totals(git, path, common or EMPTY_TREE, head)
    if common == head:
        return Result("empty", head, base, common, [], totals, 0 if base == head else 1)
    tree, conflicts = await git.merge_tree(path, base, head)
    status = "mergeable" if tree is not None else "conflict"
    behind = 0 if common == base else 1
    return Result(status, head, base, common or "", conflicts, totals, behind)


def save_result(tx: Tx, issue_id: int, result: Result) -> None:
    """Write what a check found."""
    plus, minus, files = result.totals
    tx.update(
        "pulls", "issue_id", issue_id, status=result.status, checked_head=result.head, checked_base=result.base,
        merge_base=result.merge_base, conflicts=json.dumps(result.conflicts), additions=plus, deletions=minus,
        changed_files=files, behind=result.behind,
    )  # fmt: skip


def _failed(tx: Tx, issue_id: int) -> None:
    tx.update("pulls", "issue_id", issue_id, status="error")


def _open_pull(tx: Tx, data: Path, issue_id: int) -> tuple[Row, Path] | None:
    row = tx.one(
        "SELECT p.*, u.name AS owner, r.name AS repo FROM pulls p JOIN issues i ON i.id = p.issue_id "
        "JOIN repos r ON r.id = p.repo_id JOIN users u ON u.id = r.owner_id "
        "WHERE p.issue_id = ? AND p.merged = 0 AND i.closed = 0",
        issue_id,
    )
    return None if row is None else (row, data / "repos" / row["owner"] / f"{row['repo']}.git")
