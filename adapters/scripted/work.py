"""Comparing a program with the reference on the same inputs."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adapters.scripted.shell import Shell
from agensh.cases import AnsweredCase, Case
from agensh.trial import Limits, Outcome, Workbench

LIMITS = Limits(seconds=5.0, memory=512 << 20, output=1 << 20)
_SHOWN = 300  # characters of an output in a report


@dataclass(frozen=True, slots=True)
class Difference:
    """One input on which the two disagree."""

    case: AnsweredCase
    got: Outcome

    @property
    def command(self) -> str:
        """The command line, for people."""
        return shlex.join(self.case.args)

    def describe(self) -> str:
        """Return the whole finding: command, inputs, what was expected, what came."""
        files = "".join(f"\nfile {name}: {text[:_SHOWN]!a}" for name, text in self.case.files.items())
        stdin = f"\nstdin: {self.case.stdin[:_SHOWN]!a}" if self.case.stdin else ""
        got = "ran out of time" if self.got.timed_out else f"code {self.got.code}, printed {self.got.text()[:_SHOWN]!a}"
        return (
            f"command: {self.command}{stdin}{files}\n"
            f"expected: code {self.case.code}, printed {self.case.stdout[:_SHOWN]!a}\ngot: {got}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a set of probes showed."""

    total: int
    differences: tuple[Difference, ...] = ()
    more: int = 0
    """Differences beyond those."""

    @property
    def agrees(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        return f"{self.total - len(self.differences) - self.more} of {self.total} probes agree"


class Bench(ABC):
    """Runs the reference and the build on the same cases, within limits."""

    @abstractmethod
    async def answer(self, cases: Sequence[Case]) -> list[AnsweredCase]:
        """Ask the reference; a case on which it runs out of time or overflows is left out."""

    @abstractmethod
    async def compare(self, program: Path, cases: Sequence[Case], name: str) -> Comparison:
        """Run `program` and the reference on the same cases."""


@dataclass(slots=True)
class LocalBench(Bench):
    """Works on this machine, one case after the other; answers are asked for once."""

    reference: Path
    tmp: Path
    shell: Shell
    _answers: dict[str, AnsweredCase | None] = field(default_factory=dict)

    async def answer(self, cases: Sequence[Case]) -> list[AnsweredCase]:
        """See Bench.answer."""
        found = []
        for case in cases:
            key = repr((case.args, case.stdin, sorted(case.files.items())))
            if key not in self._answers:
                outcome = await self._run(self.reference, case)
                usable = not (outcome.timed_out or outcome.overflowed)
                self._answers[key] = AnsweredCase.of(case, outcome.text(), outcome.code) if usable else None
            if (answered := self._answers[key]) is not None:
                found.append(answered)
        return found

    async def compare(self, program: Path, cases: Sequence[Case], name: str) -> Comparison:
        """See Bench.compare."""
        answered = await self.answer(cases)
        differences = []
        for case in answered:
            got = await self._run(program, case)
            if not got.answers(case):
                differences.append(Difference(case, got))
        result = Comparison(len(answered), tuple(differences))
        shown = "\n".join(difference.describe() for difference in result.differences[:2])
        self.shell.note(f"compare {program.name} with {self.reference.name}: {name}", f"{result}\n{shown}", ok=True)
        return result

    async def _run(self, program: Path, case: Case) -> Outcome:
        # A cancelled turn still waits for this one run (at most `LIMITS.seconds`): a thread cannot be stopped, and
        # nothing may be left running.
        job = asyncio.ensure_future(asyncio.to_thread(Workbench(self.tmp, LIMITS).run, program, case))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait([job])
            raise
