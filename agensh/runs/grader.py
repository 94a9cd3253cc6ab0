"""The grader of rebuild tasks: build a clean export with its own `compile.sh`, then compare it with the reference.

Nothing a submission does raises: a build that fails, hangs or makes no executable is a grade of 0 with the reason.

    python -m agensh.runs.grader --source DIR --cases FILE [--json]

ends with 0 when every case passes, 1 when some fail or the build fails, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agensh.cases import AnsweredCase, read_cases
from agensh.errors import AgenshError
from agensh.runs.cases import run_all
from agensh.trial import STERILE_ENV, Limits, Outcome, run_limited

BUILD_LOG_CAP = 20_000  # characters kept of a build's output
SHOWN_CAP = 500  # characters of expected and actual output kept with a failure


class GradeError(AgenshError):
    """The commit cannot be graded."""


@dataclass(frozen=True, slots=True)
class Score:
    """Passed cases of a group."""

    passed: int
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that was answered differently, both answers cut to a readable length."""

    id: str
    args: tuple[str, ...]
    reason: str
    expected_code: int
    code: int
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Grade:
    """The result of grading one source tree."""

    passed: int
    total: int
    by_group: dict[str, Score]
    build_ok: bool
    build_log: str
    failures: list[Failure] = field(default_factory=list)

    @property
    def pass_rate(self) -> float:
        """Share of passed cases, 0 to 1."""
        return self.passed / self.total if self.total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the grade as JSON data."""
        return asdict(self) | {"pass_rate": self.pass_rate}


def grade(
    source: Path,
    cases: Sequence[AnsweredCase],
    *,
    jobs: int = 2,
    build_timeout: float = 300.0,
    limits: Limits | None = None,
    keep_failures: int = 20,
) -> Grade:
    """Build `source` (a clean export that may be written to) and run every case against its `./executable`."""
    source = source.resolve()
    ok, log = _build(source, build_timeout)
    if not ok:
        return _count(cases, [], build_ok=False, log=log, keep=0)
    outcomes = run_all(source / "executable", cases, jobs=jobs, limits=limits)
    return _count(cases, outcomes, build_ok=True, log=log, keep=keep_failures)


def grade_commit(
    repository: Path,
    commit: str,
    cases: Sequence[AnsweredCase],
    *,
    jobs: int = 2,
    build_timeout: float = 300.0,
    limits: Limits | None = None,
    keep_failures: int = 20,
) -> Grade:
    """Export a commit of a repository (bare or with a work tree) to a folder outside any repository and grade that."""
    with tempfile.TemporaryDirectory(prefix="agensh-grade-", ignore_cleanup_errors=True) as temporary:
        source = Path(temporary) / "source"
        export(repository, commit, source)
        return grade(
            source,
            cases,
            jobs=jobs,
            build_timeout=build_timeout,
            limits=limits,
            keep_failures=keep_failures,
        )


def export(repository: Path, commit: str, destination: Path) -> None:
    """Write the files of a commit to a new folder; raise GradeError when the repository does not have it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    git = ["git", "-c", "safe.directory=*", "-C", str(repository)]
    found = subprocess.run(
        [*git, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{commit}}"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if found.returncode != 0:
        raise GradeError(f"The repository {repository} has no commit {commit!r}. {found.stderr.strip()}".strip())
    destination.mkdir(parents=True)
    archive = destination.parent / f"{destination.name}.tar"
    for command in (
        [*git, "archive", "--format=tar", f"--output={archive}", found.stdout.strip()],
        ["tar", "-x", "-f", str(archive), "-C", str(destination)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode != 0:
            raise GradeError(f"The commit {commit} cannot be exported from {repository}: {done.stderr.strip()[-500:]}")
    archive.unlink()


def _build(source: Path, timeout: float) -> tuple[bool, str]:
    script, executable = source / "compile.sh", source / "executable"
    notes = ""
    if executable.is_symlink() or executable.exists():
        notes = "A shipped ./executable was removed before the build.\n"
        if executable.is_dir() and not executable.is_symlink():
            shutil.rmtree(executable)
        else:
            executable.unlink()
    if script.is_symlink() or not script.is_file():
        return False, notes + "The root has no compile.sh."
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with tempfile.TemporaryDirectory(prefix="agensh-build-", ignore_cleanup_errors=True) as home:
        outcome = run_limited(
            ["./compile.sh"],
            source,
            limits=Limits(seconds=timeout, memory=64 << 30, output=512 << 20),
            env=STERILE_ENV | {"HOME": home, "TMPDIR": home},
        )
    log = notes + (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
    log = (
        log
        if len(log) <= BUILD_LOG_CAP
        else f"[{len(log) - BUILD_LOG_CAP} characters left out]\n" + log[-BUILD_LOG_CAP:]
    )
    if outcome.timed_out:
        return False, log + f"\ncompile.sh was stopped after {timeout:g} s."
    if outcome.code != 0:
        return False, log + f"\ncompile.sh ended with {outcome.code}."
    if not executable.is_file() or not os.access(executable, os.X_OK):
        return False, log + "\ncompile.sh made no ./executable that can be run."
    return True, log


def _count(cases: Sequence[AnsweredCase], outcomes: Sequence[Outcome], *, build_ok: bool, log: str, keep: int) -> Grade:
    passed: dict[str, int] = {}
    total: dict[str, int] = {}
    failures: list[Failure] = []
    for case in cases:
        total[case.group] = total.get(case.group, 0) + 1
    for case, outcome in zip(cases, outcomes, strict=build_ok):
        if outcome.answers(case):
            passed[case.group] = passed.get(case.group, 0) + 1
        elif len(failures) < keep:
            failures.append(_failure(case, outcome))
    scores = {group: Score(passed.get(group, 0), count) for group, count in sorted(total.items())}
    return Grade(sum(passed.values()), len(cases), scores, build_ok, log, failures)


def _failure(case: AnsweredCase, outcome: Outcome) -> Failure:
    if outcome.timed_out:
        reason = "ran out of time"
    elif outcome.overflowed:
        reason = "wrote too much"
    elif outcome.code != case.code:
        reason = f"exit code {outcome.code}, expected {case.code}"
    elif outcome.text() != case.stdout:
        reason = "standard output differs"
    else:
        reason = "nothing on standard error"
    shown = (case.stdout[:SHOWN_CAP], outcome.text()[:SHOWN_CAP])
    return Failure(case.id, case.args, reason, case.code, outcome.code, *shown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade a folder from the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agensh.runs.grader", description="Grade a rebuilt program.")
    parser.add_argument("--source", type=Path, required=True, help="the source tree; a copy of it is built")
    parser.add_argument("--cases", type=Path, required=True, help="answered cases, one JSON object a line")
    parser.add_argument("--take-cases", action="store_true", help="remove that file before anything is built")
    parser.add_argument("--build-timeout", type=float, default=300.0, help="seconds for compile.sh (300)")
    parser.add_argument("--jobs", type=int, default=2, help="cases run at the same time (2)")
    parser.add_argument("--json", action="store_true", help="print the whole grade as JSON")
    options = parser.parse_args(arguments)
    if not options.source.is_dir():
        parser.error(f"--source {options.source} is not a folder")
    try:
        cases = read_cases(AnsweredCase, options.cases)
    except AgenshError as error:
        parser.error(str(error))
    if options.take_cases:
        options.cases.unlink()
    with tempfile.TemporaryDirectory(prefix="agensh-grade-", ignore_cleanup_errors=True) as temporary:
        source = Path(temporary) / "source"
        shutil.copytree(options.source, source, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        result = grade(source, cases, jobs=options.jobs, build_timeout=options.build_timeout)
    sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n" if options.json else _summary(result))
    return 0 if result.build_ok and result.passed == result.total else 1


def _summary(result: Grade) -> str:
    lines = [] if result.build_ok else [f"build failed: {result.build_log}"]
    lines += [f"{group:12} {score.passed:4}/{score.total}" for group, score in result.by_group.items()]
    lines += [f"failed {failure.id}: {failure.reason}" for failure in result.failures]
    lines.append(f"pass rate {result.pass_rate:.3f} ({result.passed} of {result.total})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
