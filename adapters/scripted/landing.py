"""From a finished branch to main: merge main, run the team's check, push, pull request, merge; again when refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from adapters.scripted.git import Clone, union
from adapters.scripted.mcp_client import Result, Tools

ROUNDS = 8
_CHECK_LIMIT = 300.0  # seconds of the whole check
_CASES = re.compile(r"^(\d+) of (\d+) cases pass", re.MULTILINE)
_BROKEN = re.compile(r"^FAIL (?P<id>\S+)", re.MULTILINE)
_PAUSE = 0.5  # seconds before another round; doubled, at most 4


class Verdict(StrEnum):
    """How landing ended."""

    LANDED = "landed"
    WRONG = "wrong"
    """The team's check fails on the tool of this very branch."""
    STUCK = "stuck"


@dataclass(slots=True)
class Landing:
    """The result, and what happened on the way."""

    verdict: Verdict
    reason: str = ""
    pull: int = 0
    sha: str = ""
    check: str = ""
    """E.g. `45 of 45 cases pass`."""
    conflicts: int = 0
    """How often main and the branch had changed the same lines."""
    author: str = ""
    """Whose change it was, the last time."""


@dataclass(frozen=True, slots=True)
class Check:
    """What the team's check said."""

    ok: bool
    summary: str
    broken: frozenset[str]
    """Tools with a failing case."""


def read_check(ok: bool, output: str) -> Check:
    """Read the output of check.py: the count, and the tools whose cases fail (a case id is `<tool>-<number>`)."""
    count = _CASES.search(output)
    tools = frozenset(match["id"].rpartition("-")[0] for match in _BROKEN.finditer(output))
    return Check(ok, count[0] if count else output.strip()[-100:], tools)


class Lander:
    """Lands branches of one clone. `registry` is the shared file in which both sides of a conflict only add lines."""

    def __init__(self, clone: Clone, tools: Tools, registry: str, react: Callable[[], Awaitable[None]]) -> None:
        self.clone = clone
        self.tools = tools
        self.registry = registry
        self.react = react

    def resolve(self, path: str, base: str, ours: str, theirs: str) -> str | None:
        """Resolve a conflict in the registry, and in case files, which grow by lines as well."""
        if path == self.registry or (path.startswith("tests/") and path.endswith(".jsonl")):
            return union(base, ours, theirs)
        return None

    async def check(self) -> Check:
        """Build and run all the team's cases."""
        done = await self.clone.shell.run(["python3", "check.py"], self.clone.path, timeout=_CHECK_LIMIT)
        return read_check(done.ok, done.output)

    async def land(self, branch: str, tool: str, title: str, body: str) -> Landing:
        """Bring the checked-out branch into main, in a bounded number of rounds."""
        result = Landing(Verdict.STUCK)
        checked = ""
        pause = _PAUSE
        for _ in range(ROUNDS):
            await self.react()
            main = await self.clone.fetch()
            merged, conflicts = await self.clone.merge_main(self.resolve)
            if conflicts:
                result.conflicts += 1
                result.author = await self.clone.last_author(conflicts[0])
            if not merged:
                result.reason = f"{', '.join(conflicts)} conflicts with a change of {result.author}"
                return result
            head = await self.clone.commit_of("HEAD")
            if head == main:
                result.verdict, result.sha = Verdict.LANDED, main
                return result
            if head != checked:
                check = await self.check()
                result.check = check.summary
                if not check.ok and (tool in check.broken or not check.broken):
                    result.verdict, result.reason = Verdict.WRONG, check.summary
                    return result
                checked = head
            if not await self.clone.push(branch):
                await self.clone.take_in(branch)
                continue
            opened = await self.tools.call("forge_pull_open", branch=branch, title=title, body=body)
            result.pull = opened.number("pull") or opened.number("number") or result.pull
            if not result.pull:
                result.reason = opened.text[:200]
                return result
            answer = await self.tools.call("forge_pull_merge", number=result.pull)
            if answer.fields.get("status") == "merged":
                result.verdict, result.sha = Verdict.LANDED, answer.fields.get("sha", "")
                return result
            result.reason = _first_sentence(answer)
            if answer.fields.get("status") == "closed":
                return result
            await asyncio.sleep(pause)
            pause = min(4.0, pause * 2)
        return result


def _first_sentence(answer: Result) -> str:
    lines = [line for line in answer.text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "the merge was refused"
