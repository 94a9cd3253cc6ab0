"""Grades are kept, whatever a later call does."""

from __future__ import annotations

from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.runs.checkpoints import Grader, load_grades
from agensh.runs.collect import git
from agensh.spec import load_spec

WHO = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")


async def test_no_later_call_takes_a_grade_away(tmp_path: Path) -> None:
    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    mirror = run.path / "record" / "workspace.git"
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(mirror))
    shas: list[str] = []
    for number in range(5):
        blob = (await git("hash-object", "-w", "--stdin", cwd=mirror, given=str(number))).strip()
        tree = (await git("mktree", cwd=mirror, given=f"100644 blob {blob}\tfile\n")).strip()
        parent = ("-p", shas[-1]) if shas else ()
        env = {"GIT_COMMITTER_DATE": f"{1_700_000_000 + number * 60} +0000"}
        shas.append((await git(*WHO, "commit-tree", "-m", str(number), *parent, tree, cwd=mirror, env=env)).strip())
    await git("update-ref", "refs/heads/main", shas[-1], cwd=mirror)
    graded: list[str] = []

    def grade(sha: str) -> tuple[int, int, bool, str]:
        graded.append(sha)
        return len(graded), 10, True, ""

    info = run.info()
    first = await Grader(run, info, grade).grade_main(most=3)
    assert [checkpoint.sha for checkpoint in first] == [shas[0], shas[2], shas[4]] == graded

    def interrupt(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Grader(run, info, grade).grade_main(most=4, progress=interrupt)
    assert load_grades(run) == first
    more = await Grader(run, info, grade).grade_main(most=5)
    assert [checkpoint.sha for checkpoint in more] == shas
    assert len(graded) == 5
    assert await Grader(run, info, grade).grade_main(most=1) == more == load_grades(run)
