"""The hidden test set of a run: made by the task, answered by the reference.

A task's `cases.py` prints unanswered cases from a fixed seed. `answer` asks the reference itself, twice, so that a case
whose answer depends on time or chance is found before a team is judged by it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from agensh.cases import AnsweredCase, Case, CaseError, dump_cases, generate_cases, parse_cases, read_cases
from agensh.trial import Limits, Outcome, Workbench

__all__ = [
    "AnsweredCase",
    "Case",
    "CaseError",
    "answer",
    "dump_cases",
    "generate_cases",
    "parse_cases",
    "read_cases",
    "run_all",
]


def answer(
    cases: Sequence[Case], reference: Path, *, jobs: int = 2, limits: Limits | None = None
) -> list[AnsweredCase]:
    """Return the cases with the reference's answers; raise CaseError when two runs differ or hit a limit."""
    limits = limits or Limits()
    reference = reference.resolve()
    first = run_all(reference, cases, jobs=jobs, limits=limits)
    second = run_all(reference, cases, jobs=jobs, limits=limits)
    answered = []
    for case, one, two in zip(cases, first, second, strict=True):
        if one.timed_out or one.overflowed:
            raise CaseError(
                f"Case {case.id}: the reference {'ran out of time' if one.timed_out else 'wrote too much'}."
            )
        if (one.stdout, one.code) != (two.stdout, two.code):
            raise CaseError(f"Case {case.id}: the reference answered differently the second time.")
        answered.append(AnsweredCase.of(case, one.text(), one.code))
    return answered


def run_all(program: Path, cases: Sequence[Case], *, jobs: int = 2, limits: Limits | None = None) -> list[Outcome]:
    """Run a program on every case, `jobs` at a time, and return the outcomes in the order of the cases."""
    jobs = max(1, min(jobs, len(cases) or 1))
    with tempfile.TemporaryDirectory(prefix="agensh-cases-") as root, ThreadPoolExecutor(jobs) as pool:
        benches: SimpleQueue[Workbench] = SimpleQueue()
        for number in range(jobs):
            benches.put(Workbench(Path(root) / str(number), limits or Limits()))

        def run(case: Case) -> Outcome:
            bench = benches.get()
            try:
                return bench.run(program, case)
            finally:
                benches.put(bench)

        return list(pool.map(run, cases))
