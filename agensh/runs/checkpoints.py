"""Grades a run's main over time.

Graded after the run, from main's first-parent history: the first commit, the last, and commits spread evenly in between
up to a limit. A tree is graded once however many commits carry it, and `grades.json` keeps every grade, so a second
call costs nothing and a limit raised later only adds points.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agensh.identity import write_private, write_private_json
from agensh.rundir import RunDir, RunInfo
from agensh.runs import DEFAULT_CHECKPOINTS
from agensh.runs.cases import AnsweredCase, Case, answer, dump_cases, generate_cases, read_cases
from agensh.runs.collect import MainCommit, git, main_history
from agensh.runs.grader import export, grade_commit
from agensh.trial import STERILE_ENV, Limits, run_limited


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The grade of main as it stood at `at` (epoch seconds)."""

    sha: str
    tree: str
    at: float
    passed: int
    total: int
    build_ok: bool
    log: str = ""

    @property
    def pass_rate(self) -> float:
        """Share of passed cases, 0 to 1."""
        return self.passed / self.total if self.total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the shape kept in `grades.json`."""
        return {name: getattr(self, name) for name in self.__slots__}


def prepare_cases(run: RunDir, info: RunInfo, *, jobs: int = 2) -> int:
    """Answer the hidden cases by the reference and keep them in the run's private folder; return how many.

    Does nothing for a task without cases, or when they are there already. Raises CaseError when the reference answers
    a case differently twice.
    """
    task = info.spec.task
    file = run.private / "cases.jsonl"
    if task.cases is None or task.reference is None:
        return 0
    if file.exists():
        return len(read_cases(AnsweredCase, file))
    cases = generate_cases(task.cases) if task.cases.suffix == ".py" else read_cases(Case, task.cases)
    answered = answer(cases, task.reference, jobs=jobs)
    run.private.mkdir(mode=0o700, exist_ok=True)
    write_private(file, dump_cases(answered))
    return len(answered)


def spread(commits: Sequence[MainCommit], most: int) -> list[MainCommit]:
    """Choose at most `most` commits: the first, the last, and the others as evenly spaced in time as they lie."""
    if len(commits) <= most:
        return list(commits)
    if most == 1:
        return [commits[-1]]
    first, last = commits[0].at, commits[-1].at
    chosen = {0, len(commits) - 1}
    for step in range(1, most - 1):
        wanted = first + (last - first) * step / (most - 1)
        chosen.add(
            min(range(len(commits)), key=lambda index: (abs(commits[index].at - wanted), index in chosen, index))
        )
    missing = iter(index for index in range(len(commits)) if index not in chosen)
    while len(chosen) < most:
        chosen.add(next(missing))
    return [commits[index] for index in sorted(chosen)]


class Grader:
    """Grades commits of a run's collected mirror."""

    def __init__(
        self, run: RunDir, info: RunInfo, grade: Callable[[str], tuple[int, int, bool, str]] | None = None
    ) -> None:
        """`grade` takes a commit and returns passed, total, built and log (blocking); by default it is done here."""
        self._run = run
        self._info = info
        self._run_grader = grade or self._grade_here
        self._mirror = run.path / "record" / "workspace.git"
        self._file = run.path / "grades.json"
        self._kept = {grade.sha: grade for grade in load_grades(run)}
        self._known = {grade.tree: grade for grade in self._kept.values()}

    async def grade_main(
        self, *, most: int = DEFAULT_CHECKPOINTS, progress: Callable[[int, int], None] | None = None
    ) -> list[Checkpoint]:
        """Grade up to `most` commits of main and return all checkpoints, those of earlier calls too, oldest first."""
        history = await main_history(self._mirror)
        commits = spread(history, most)
        for done, commit in enumerate(commits):
            if progress:
                progress(done, len(commits))
            self._kept[commit.sha] = await self._grade(commit)
            # All of them each time: a call that is interrupted takes nothing away.
            write_private_json(self._file, [grade.to_json() for grade in self._graded(history)])
        return self._graded(history)

    def _graded(self, history: Sequence[MainCommit]) -> list[Checkpoint]:
        return [self._kept[commit.sha] for commit in history if commit.sha in self._kept]

    async def _grade(self, commit: MainCommit) -> Checkpoint:
        tree = (await git("rev-parse", f"{commit.sha}^{{tree}}", cwd=self._mirror)).strip()
        known = self._known.get(tree)
        if known is None:
            passed, total, build_ok, log = await asyncio.to_thread(self._run_grader, commit.sha)
            known = Checkpoint(commit.sha, tree, commit.at, passed, total, build_ok, log)
            self._known[tree] = known
        return Checkpoint(commit.sha, tree, commit.at, known.passed, known.total, known.build_ok, known.log)

    def _grade_here(self, sha: str) -> tuple[int, int, bool, str]:
        task = self._info.spec.task
        if task.acceptance is not None:
            accepted, log = accept(self._mirror, sha, task.acceptance, timeout=task.build_timeout)
            return int(accepted), 1, True, log
        grade = grade_commit(self._mirror, sha, self._cases(), build_timeout=task.build_timeout)
        return grade.passed, grade.total, grade.build_ok, "" if grade.build_ok else grade.build_log[-2000:]

    def _cases(self) -> list[AnsweredCase]:
        return read_cases(AnsweredCase, self._run.private / "cases.jsonl")


def accept(repository: Path, sha: str, command: str, *, timeout: float) -> tuple[bool, str]:
    """Run a task's acceptance command in a clean export of a commit; return whether it ended with 0, and its output."""
    with tempfile.TemporaryDirectory(prefix="agensh-accept-", ignore_cleanup_errors=True) as temporary:
        source = Path(temporary) / "source"
        export(repository, sha, source)
        outcome = run_limited(
            ["/bin/sh", "-c", command],
            source,
            limits=Limits(seconds=timeout, memory=8 << 30, output=64 << 20),
            env=STERILE_ENV | {"HOME": temporary, "TMPDIR": temporary},
        )
    log = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")[-2000:]
    if outcome.timed_out:
        log += f"\nThe acceptance command was stopped after {timeout:g} s."
    return outcome.code == 0 and not outcome.timed_out, log


def load_grades(run: RunDir) -> list[Checkpoint]:
    """Return the grades kept for a run, oldest first; none when it was not graded."""
    file = run.path / "grades.json"
    if not file.exists():
        return []
    return [Checkpoint(**item) for item in json.loads(file.read_text(encoding="utf-8"))]
