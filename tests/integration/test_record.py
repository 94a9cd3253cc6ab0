"""The record and the archives of a run: written by one process at a time, whatever a killed one has left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.launch.create import create_baseline
from agensh.launch.examples import example
from agensh.launch.export import export_submission
from agensh.launch.takeout import take_out
from agensh.rundir import RunDir
from agensh.runs import collect
from agensh.runs.alone import alone_at
from agensh.runs.collect import Collector, GitFailed, git
from agensh.spec import load_spec

WHO = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")


@pytest.fixture
async def run(tmp_path: Path) -> RunDir:
    """A baseline whose workspace has a commit on main."""
    made = create_baseline(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(made.workspace))
    await commit(made, "one")
    return made


async def commit(run: RunDir, message: str) -> str:
    tree = (await git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=run.workspace)).strip()
    sha = (await git(*WHO, "commit-tree", "-m", message, tree, cwd=run.workspace)).strip()
    await git("update-ref", "refs/heads/main", sha, cwd=run.workspace)
    return sha


async def test_locks_that_a_killed_git_has_left_are_no_hindrance(run):
    collector = Collector(run, run.info(), run.secrets())
    await collector.collect()
    await export_submission(run, run.info())
    await git("branch", "gone", cwd=collector.mirror)
    for name in ("packed-refs", "HEAD", "config", "shallow", "refs/heads/main", "refs/heads/gone"):
        (collector.mirror / f"{name}.lock").touch()
    (run.path / "workspace.bundle.lock").touch()
    sha = await commit(run, "two")
    await collector.collect()
    assert (await git("for-each-ref", "--format=%(refname) %(objectname)", cwd=collector.mirror)).split() == [
        "refs/heads/main",
        sha,
    ]
    await export_submission(run, run.info())
    heads = await git("bundle", "list-heads", str(run.path / "workspace.bundle"), cwd=collector.mirror)
    assert f"{sha} refs/heads/main" in heads.splitlines()


async def test_one_at_a_time_works_on_the_record(run):
    at_work = 0

    class Slow(Collector):
        async def _repository(self, *_arguments: object) -> int:
            nonlocal at_work
            at_work += 1
            for _ in range(5):
                await asyncio.sleep(0)
            assert at_work == 1
            at_work -= 1
            return 0

    await asyncio.gather(*(Slow(run, run.info(), run.secrets()).collect() for _ in range(3)))


async def test_who_comes_second_waits(tmp_path):
    order = []

    async def second() -> None:
        async with alone_at(tmp_path):
            order.append("second")

    async with alone_at(tmp_path):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_git_that_does_not_end_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "GIT_TIMEOUT", 0.01)
    with pytest.raises(GitFailed, match=r"^git -c did not end within 0\.01 s\.$"):
        await git("-c", "alias.wait=!exec sleep 5", "wait", cwd=tmp_path)


async def test_files_in_the_making_are_not_taken_out(run, tmp_path):
    await Collector(run, run.info(), run.secrets()).collect()
    (run.path / "record/entries.json").write_text("[]")
    (run.path / "record/.entries.json.abc").symlink_to("gone")  # replaced between the look and the copy
    run.logs.mkdir()
    (run.logs / ".node.jsonl.abc").symlink_to("gone")
    await take_out(run, run.info(), tmp_path / "out", collect=False)
    assert (tmp_path / "out/record/entries.json").exists()
    assert not list((tmp_path / "out").rglob(".*"))
