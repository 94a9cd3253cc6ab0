"""How a merge waits for a forge that is still checking, over a forge that only answers."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from agensh.clients.gitea import GiteaClient, MergeStatus
from agensh.clients.gitea_models import MergeResult
from tests.support.clock import ManualClock

HEAD, BASE, MERGED = "a" * 40, "b" * 40, "c" * 40
PATIENCE = 40.0  # seconds


class Forge:
    """Checks each pull request for `checks` seconds; then they merge, or are in conflict."""

    def __init__(self, clock: ManualClock, checks: float, *, conflict: bool = False, told: bool = False) -> None:
        self.clock = clock
        self.ready_at = clock.time() + checks
        self.conflict = conflict
        self.told = told
        """It says that a pull request can be merged before it is true, and answers 405 then."""
        self.asked: list[str] = []
        self.merged: set[str] = set()

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(f"{request.method} {path}")
        ready = self.clock.time() >= self.ready_at
        number = path.split("/")[7]
        if path.endswith("/merge"):
            if not ready:
                return httpx.Response(405, json={"message": "Please try again later"})
            self.merged.add(number)
            return httpx.Response(200)
        if path.endswith("/update"):
            if self.conflict:
                return httpx.Response(409, json={"message": "merge failed because of conflict"})
            return httpx.Response(500, json={"message": "branch is up to date"})
        done = number in self.merged
        body = {
            "number": int(number),
            "state": "closed" if done else "open",
            "merged": done,
            "mergeable": not self.conflict and (ready or self.told),
            "merge_commit_sha": MERGED if done else None,
            "merge_base": "d" * 40,
            "head": {"ref": "work", "sha": HEAD},
            "base": {"ref": "main", "sha": BASE},
        }
        return httpx.Response(200, content=json.dumps(body))


async def merge_all(forge: Forge, count: int) -> list[MergeResult]:
    """Ask for `count` merges at once and let time pass until all are answered."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(forge.answer)) as http:
        client = GiteaClient("http://forge.invalid", token="t", http=http, clock=forge.clock)
        asking = [
            asyncio.create_task(client.merge_when_ready("o", "r", number, head_sha=HEAD, patience=PATIENCE))
            for number in range(1, count + 1)
        ]
        for _ in range(int(PATIENCE) * 10):
            await forge.clock.advance(0.5)
            if all(task.done() for task in asking):
                break
        return [task.result() for task in asking]


@pytest.mark.parametrize("told", [False, True])
async def test_many_merges_wait_for_a_long_check_without_a_busy_loop(told: bool) -> None:
    forge = Forge(ManualClock(), checks=20.0, told=told)
    results = await merge_all(forge, 64)
    assert {result.status for result in results} == {MergeStatus.MERGED}
    assert {result.sha for result in results} == {MERGED}
    # Twenty seconds at waits that grow to 1.5 s on average: some twenty looks each, and a merge beside each if told.
    assert len(forge.asked) <= 64 * (100 if told else 60)


async def test_a_check_without_end_is_told_in_time() -> None:
    forge = Forge(ManualClock(), checks=3600.0)
    began = forge.clock.time()
    (result,) = await merge_all(forge, 1)
    assert result.status is MergeStatus.TRY_LATER
    assert "still checking" in result.message
    assert forge.clock.time() - began <= PATIENCE + 2
    assert not [asked for asked in forge.asked if asked.endswith("/merge")]


async def test_a_conflict_is_told_long_before_patience_ends() -> None:
    forge = Forge(ManualClock(), checks=0.0, conflict=True)
    began = forge.clock.time()
    (result,) = await merge_all(forge, 1)
    assert result.status is MergeStatus.CONFLICT
    assert "conflict" in result.message
    assert forge.clock.time() - began < PATIENCE / 2
