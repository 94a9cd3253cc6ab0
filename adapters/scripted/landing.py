"""From a finished branch to main: merge main, run the team's check, push, pull request, merge; again when refused."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from adapters.scripted.git import Clone, union
from adapters.scripted.mcp_client import Result, Tools
from agensh.clock import Clock

ROUNDS = 20  # tries to land; each one fails because somebody else landed
_CHECK_LIMIT = 300.0  # seconds of the whole check
_CASES = re.compile(r"^(\d+) of (\d+) cases pass", re.MULTILINE)
_BROKEN = re.compile(r"^FAIL (?P<id>\S+)", re.MULTILINE)
_PAUSE = 0.2  # seconds before another round after a refusal; doubled
_LONGEST_PAUSE = 4.0  # seconds
_HASTY_ROUNDS = 2  # rounds before a landing begins to wait for its turn: in a small team the first often succeeds
_HEAD_PATIENCE = 12.0  # seconds that the oldest pull request gets; then it is passed over
_TURN_PATIENCE = 120.0  # seconds that one landing waits for its turn, in all
_MOST_BEFORE = 3  # older pull requests with which a landing may still come through when the run winds down
_CASE_ID = re.compile(r'"id": "([^"]+)"')
_LISTED = re.compile(r"^#(?P<number>\d+) \[.*\((?P<branch>[^()\s]+)\)$", re.MULTILINE)


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


def ahead(listing: str, pull: int, kind: str) -> list[int]:
    """Return the open pull requests of a kind (`area`: they add to the registry) that are older than `pull`."""
    found = _LISTED.finditer(listing)
    older = {int(match["number"]) for match in found if match["branch"].partition("/")[2].startswith(f"{kind}-")}
    return sorted(number for number in older if number < pull)


def unique_cases(text: str) -> str:
    """Keep the first of the cases that share an id: two workers may have numbered theirs alike."""
    kept: dict[str, str] = {}
    for line in text.splitlines():
        found = _CASE_ID.search(line)
        kept.setdefault(found[1] if found else line, line)
    return "".join(f"{line}\n" for line in kept.values())


def read_check(ok: bool, output: str) -> Check:
    """Read the output of check.py: the count, and the tools whose cases fail (a case id is `<tool>-<number>`)."""
    count = _CASES.search(output)
    tools = frozenset(match["id"].rpartition("-")[0] for match in _BROKEN.finditer(output))
    return Check(ok, count[0] if count else output.strip()[-100:], tools)


class Lander:
    """Lands branches of one clone.

    All who add to the registry change the same lines, so whoever merges puts all the others in conflict. Those who were
    beaten to it more than once take turns, oldest pull request first, without a word: each looks at the open ones and
    lets the older ones go, within bounds, for the owner of an older one may be slow or gone. `hurry` says that the run
    winds down: then nobody waits, and who has too many before it gives up. `over` says that it ends: then nothing new
    is tried.
    """

    def __init__(
        self,
        clone: Clone,
        tools: Tools,
        registry: str,
        sources: re.Pattern[str],
        cases: re.Pattern[str],
        react: Callable[[], Awaitable[None]],
        clock: Clock,
        *,
        hurry: Callable[[], bool] = lambda: False,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clone = clone
        self.tools = tools
        self.registry = registry
        self.sources = sources
        self.cases = cases
        self.react = react
        self.hurry = hurry
        self.over = over
        self.clock = clock

    def resolve(self, path: str, base: str, ours: str, theirs: str) -> str | None:
        """Resolve a conflict in the registry, and in case files, which grow by lines as well."""
        merged = union(base, ours, theirs)
        if path == self.registry:
            return merged
        if self.cases.fullmatch(path):
            return None if merged is None else unique_cases(merged)
        return None

    async def check(self, tools: Sequence[str] = ()) -> Check:
        """Build and run all the team's cases, or those of some tools."""
        done = await self.clone.shell.build(["python3", "check.py", *tools], self.clone.path, timeout=_CHECK_LIMIT)
        return read_check(done.ok, done.output)

    async def land(
        self, branch: str, tool: str, title: str, body: str, *, taken: Callable[[], Awaitable[bool]] | None = None
    ) -> Landing:
        """Bring the checked-out branch into main, in a bounded number of rounds.

        `taken` says that main has got by another way what the branch brings; then it is not wanted any more.
        """
        result = Landing(Verdict.STUCK)
        checked = ""
        pause = _PAUSE
        patience = _TURN_PATIENCE
        main = await self.clone.fetch()
        for number in range(ROUNDS):
            await self.react()
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
            if self.over() and result.pull:
                result.reason = result.reason or "the run ends"
                return result
            if taken is not None and await taken():
                result.reason = "it is on main already"
                return result
            # Before the check, so that only the merge itself is left to do after it: the shorter that takes, the
            # fewer times somebody else is faster.
            if not await self._offer(branch, title, body, result):
                return result
            if head != checked:
                check = await self.check(await self._scope(checked, head, tool))
                result.check = result.check or check.summary
                if not check.ok and (tool in check.broken or not check.broken):
                    result.verdict, result.reason = Verdict.WRONG, check.summary
                    return result
                checked = head
            if number >= _HASTY_ROUNDS and self.registry in await self.clone.changed(main, head):
                patience = await self._await_turn(result.pull, patience)
                if patience < 0:
                    result.reason = "the run ends, and too many older pull requests are before mine"
                    return result
            seen, main = main, await self.clone.fetch()
            if main != seen:
                result.reason = "others were faster each time"
                continue
            if not await self._merge(result) or result.verdict is Verdict.LANDED:
                return result
            await self.clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            main = await self.clone.fetch()
        return result

    async def _await_turn(self, pull: int, patience: float) -> float:
        """Wait until no older pull request adds to the registry, at most `patience` seconds; return what is left.

        Negative when the turn will not come before the end of the run.
        """
        first, since, passed_over = 0, self.clock.monotonic(), set[int]()
        while patience > 0:
            listing = (await self.tools.call("forge_pulls")).text
            older = [number for number in ahead(listing, pull, "area") if number not in passed_over]
            if not older:
                break
            if self.hurry():
                return -1.0 if len(older) > _MOST_BEFORE else patience
            now = self.clock.monotonic()
            if older[0] != first:
                first, since = older[0], now
            elif now - since > _HEAD_PATIENCE:
                passed_over.add(first)
                continue
            wait = min(patience, _LONGEST_PAUSE, 0.5 * len(older))
            await self.clock.sleep(wait)
            patience -= wait
        return patience

    async def _offer(self, branch: str, title: str, body: str, result: Landing) -> bool:
        """Push the branch and see that it has a pull request; False when that is impossible."""
        if not await self.clone.push(branch):
            result.reason = "the forge rejected the push"
            # The forge may have merged main into the branch on its own.
            if not await self.clone.take_in(branch) or not await self.clone.push(branch):
                return False
        if not result.pull:
            opened = await self.tools.call("forge_pull_open", branch=branch, title=title, body=body)
            result.pull = opened.number("pull")
            result.reason = "" if result.pull else _reason(opened)
        return bool(result.pull)

    async def _merge(self, result: Landing) -> bool:
        """Merge once; False when another round is of no use."""
        answer = await self.tools.call("forge_pull_merge", number=result.pull)
        status = answer.fields.get("status")
        if status == "merged":
            result.verdict, result.sha = Verdict.LANDED, answer.fields.get("sha", "")
            return True
        result.reason = _reason(answer)
        return status != "closed"

    async def _scope(self, checked: str, head: str, tool: str) -> list[str]:
        """Return the tools whose cases are due after more of main was taken in; an empty list means all.

        What was checked before and has not changed since need not be checked again, which keeps the time short in which
        others can be faster once more. A change of anything that all tools share makes the whole check due.
        """
        if not checked:
            return []
        due = {tool}
        for path in await self.clone.changed(checked, head):
            if path == self.registry:
                continue
            own = self.sources.fullmatch(path) or self.cases.fullmatch(path)
            if own is None:
                return []
            due.add(own["tool"])
        return sorted(due)


def _reason(answer: Result) -> str:
    """Return the sentence of a refusal: the line after the machine-readable one."""
    lines = [line.strip() for line in answer.text.splitlines()[1:] if line.strip()]
    return lines[0].rstrip(".")[:200] if lines else "the forge refused without a reason"
