"""A git that is killed, or locks that one left behind, stop the forge for a moment only, without a restart."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.embedded.forge.leftovers import LOCKS, Leftovers, locks
from agensh.embedded.forge.settings import ForgeSettings
from tests.contract.forge.world import World, eventually, run_git
from tests.support.servers import running_forge

KILLER = """#!/bin/sh
# git calls this around every change of refs, and is killed there, once.
while read -r old new ref; do
	if [ "$1 $ref" = "{state} {ref}" ] && mkdir "$GIT_DIR/killed" 2>/dev/null; then kill -9 $PPID; fi
done
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return tmp_path / "forge" / "repos" / "ownerkill" / "project.git"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[World]:
    """A world on a forge of its own, in whose folder the test works."""
    settings = ForgeSettings(event_source_update_time=0.05, password_rounds=1000)
    with running_forge(tmp_path / "forge", settings=settings) as forge, World(forge, tmp_path, "kill") as world:
        yield world


def arm(bare: Path, state: str, ref: str) -> None:
    hook = bare / "hooks" / "reference-transaction"
    hook.write_text(KILLER.format(state=state, ref=ref))
    hook.chmod(0o755)


@pytest.mark.parametrize("state", ["prepared", "committed"])
def test_a_merge_whose_git_is_killed_is_done_once(own: World, bare: Path, state: str) -> None:
    own.branch(own.ann, "work", {"a.txt": "1\n"})
    number = own.pull(own.ann, "work")["number"]
    arm(bare, state, "refs/heads/main")
    answer = own.merge(own.ann, number)
    assert (answer.status_code, (bare / "killed").exists()) == (200, True), answer.text
    pull = own.ann.http.get(f"{own.at}/pulls/{number}").json()
    tip = own.ann.http.get(f"{own.at}/branches/main").json()["commit"]["id"]
    assert (pull["merged"], pull["merge_commit_sha"]) == (True, tip)
    own.branch(own.ann, "next", {"b.txt": "1\n"})
    assert own.merge(own.ann, own.pull(own.ann, "next")["number"]).status_code == 200
    eventually(lambda: not locks(bare), "no lock is left")


@pytest.mark.parametrize("state", ["prepared", "committed"])
def test_a_deletion_whose_git_is_killed_is_done(own: World, bare: Path, state: str) -> None:
    own.branch(own.ann, "work", {"a.txt": "1\n"})
    arm(bare, state, "refs/heads/work")
    assert own.ann.http.delete(f"{own.at}/branches/work").status_code == 204
    assert (bare / "killed").exists()
    assert own.ann.http.get(f"{own.at}/branches/work").status_code == 404


def test_after_a_killed_receive_pack_the_push_goes_through(own: World, bare: Path) -> None:
    clone = own.clone(own.ann)
    sha = clone.commit({"a.txt": "1\n"})
    arm(bare, "prepared", "refs/heads/work")
    assert clone.git("push", "origin", "HEAD:work", check=False).returncode != 0
    assert (bare / "killed").exists()
    clone.git("push", "-q", "origin", "HEAD:work")
    assert own.ann.http.get(f"{own.at}/branches/work").json()["commit"]["id"] == sha


def leave(bare: Path, *names: str) -> None:
    for name in names:
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        (bare / name).touch()


def test_locks_that_somebody_else_left_are_removed(own: World, bare: Path) -> None:
    """Whoever left them was no git of this forge: it meets them when it needs what they lock."""
    own.branch(own.ann, "work", {"a.txt": "1\n"})
    leave(bare, *LOCKS, "refs/heads/work.lock", "refs/heads/new.lock")
    assert own.ann.http.delete(f"{own.at}/branches/work").status_code == 204
    clone = own.clone(own.ann)
    leave(bare, "refs/heads/new.lock")
    clone.git("push", "-q", "origin", "HEAD:new")
    clone.git("push", "-q", "origin", ":new")
    assert not locks(bare)


def test_the_start_removes_every_lock(tmp_path: Path, bare: Path) -> None:
    with running_forge(tmp_path / "forge") as forge, World(forge, tmp_path, "kill") as world:
        world.branch(world.ann, "work", {"a.txt": "1\n"})
    leave(bare, *LOCKS, "refs/heads/main.lock", "refs/pull/1/head.lock")
    with running_forge(tmp_path / "forge"):
        assert not locks(bare)


def test_packing_goes_on_after_a_killed_maintenance(tmp_path: Path, bare: Path) -> None:
    settings = ForgeSettings(event_source_update_time=0.05, password_rounds=1000, maintenance_interval=0.05)
    with running_forge(tmp_path / "forge", settings=settings) as forge, World(forge, tmp_path, "kill") as world:
        eventually(lambda: (bare / "packed-refs").exists(), "refs are packed")
        lock = bare / "objects/maintenance.lock"
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            break
        world.branch(world.ann, "work", {"a.txt": "1\n"})
        eventually(lambda: "refs/heads/work" in (bare / "packed-refs").read_text(), "the new one is packed")


async def test_a_lock_is_held_as_long_as_its_holder_is_at_work(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "--bare", "r.git")
    repo = tmp_path / "r.git"
    leftovers = Leftovers(SystemClock())
    lock = repo / "refs/heads/main.lock"
    with leftovers.working(repo):
        lock.touch()
        freeing = asyncio.create_task(leftovers.free(repo))
        done, _ = await asyncio.wait([freeing], timeout=1.5)  # longer than a lock has to stand
        assert not done
        lock.unlink()
        lock.touch()
    await freeing
    assert lock.exists(), "another of the same name"
    await leftovers.free(repo)
    assert not lock.exists()


def test_a_failed_check_is_made_again_when_somebody_looks(own: World, bare: Path, tmp_path: Path) -> None:
    own.branch(own.ann, "work", {"a.txt": "1\n"})
    number = own.pull(own.ann, "work")["number"]
    sha = own.branch(own.ben, "more", {"b.txt": "1\n"}, base="work")
    (bare / "objects" / sha[:2] / sha[2:]).rename(tmp_path / "hidden")
    (bare / "refs/heads/work").write_text(f"{sha}\n")
    own.owner.http.patch(f"{own.at}/pulls/{number}", json={"state": "closed"})
    own.owner.http.patch(f"{own.at}/pulls/{number}", json={"state": "open"})

    def status() -> str:
        with closing(sqlite3.connect(tmp_path / "forge" / "forge.sqlite3", timeout=20)) as rows:
            return str(rows.execute("SELECT status FROM pulls").fetchone()[0])

    eventually(lambda: status() == "error", "the check has failed")
    (tmp_path / "hidden").rename(bare / "objects" / sha[:2] / sha[2:])
    own.mergeable(number)
    assert own.merge(own.ann, number).status_code == 200
