"""The collector reads the workers' clones and obeys nothing that stands in them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.rundir import WorkerSecrets
from agensh.runs.clones import clones_in
from agensh.runs.collect import Collector, GitFailed, git
from agensh.spec import load_spec

WORKER = "demo-worker1"
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
MISSING = "1" * 40


async def commit(repository: Path, message: str, *parents: str) -> str:
    tree = (await git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=repository)).strip()
    known = [word for parent in parents for word in ("-p", parent)]
    return (await git(*WHO, "commit-tree", "-m", message, *known, tree, cwd=repository)).strip()


@pytest.fixture
async def collector(tmp_path: Path) -> Collector:
    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())
    secrets = run.secrets()
    names = ("forge_password", "forge_token", "chat_token", "chat_user_id", "board_token", "mcp_token")
    secrets.workers[WORKER] = WorkerSecrets(**dict.fromkeys(names, "x"))
    collector = Collector(run, run.info(), secrets)
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(collector.mirror))
    first = await commit(collector.mirror, "first")
    await git("update-ref", "refs/heads/main", first, cwd=collector.mirror)
    return collector


@pytest.fixture
async def clone(collector: Collector) -> Path:
    place = collector._run.worker(WORKER) / "work" / "repository"
    place.parent.mkdir(parents=True)
    await git("clone", "--quiet", str(collector.mirror), str(place))
    return place


async def test_what_was_never_pushed_is_found_loose_and_packed(collector, clone):
    main = (await git("rev-parse", "origin/main", cwd=clone)).strip()
    pushed = await commit(clone, "pushed to a branch that is gone", main)
    await git("update-ref", "refs/remotes/origin/gone", pushed, cwd=clone)
    packed = await commit(clone, "packed", pushed)
    await git("update-ref", "refs/heads/deep/packed", packed, cwd=clone)
    await git("pack-refs", "--all", cwd=clone)
    loose = await commit(clone, "loose", main)
    await git("update-ref", "refs/heads/loose", loose, cwd=clone)
    newer = await commit(clone, "newer than what was packed", packed)
    await git("update-ref", "refs/heads/deep/packed", newer, cwd=clone)
    found = await collector._stranded([])
    assert sorted(item["sha"] for item in found) == sorted([packed, loose, newer])
    assert {item["where"] for item in found} == {WORKER}


async def test_a_program_that_a_clone_names_is_not_run(collector, clone, tmp_path):
    marker = tmp_path / "obeyed"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    program.chmod(0o755)
    await git("config", "core.repositoryFormatVersion", "1", cwd=clone)
    await git("config", "extensions.partialClone", "origin", cwd=clone)
    for name, value in {"promisor": "true", "uploadpack": str(program), "url": str(tmp_path)}.items():
        await git("config", f"remote.origin.{name}", value, cwd=clone)
    tree = (await git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=clone)).strip()
    text = f"tree {tree}\nparent {MISSING}\nauthor t <t@x> 1 +0000\ncommitter t <t@x> 1 +0000\n\nx\n"
    head = (await git("hash-object", "-t", "commit", "-w", "--stdin", cwd=clone, given=text)).strip()
    (clone / ".git" / "refs" / "heads" / "main").write_text(head + "\n")
    # That this is no empty threat: git itself obeys the clone.
    with pytest.raises(GitFailed):
        await git("rev-list", "--branches", cwd=clone)
    assert marker.exists()
    marker.unlink()
    assert await collector._stranded([]) == []
    assert not marker.exists()


async def test_pipes_links_and_nonsense_in_a_clone_hold_nothing_up(collector, clone, tmp_path):
    folder = clone / ".git"
    os.mkfifo(folder / "refs" / "heads" / "pipe")
    (folder / "refs" / "heads" / "link").symlink_to("/dev/zero")
    (folder / "refs" / "heads" / "text").write_text("--upload-pack=x\n")
    (folder / "refs" / "heads" / "gone").write_text(MISSING + "\n")
    (folder / "packed-refs").unlink()
    os.mkfifo(folder / "packed-refs")
    (clone.parent / "elsewhere").symlink_to(collector._run.path / "record")
    (clone.parent / "file").write_text("x")
    async with asyncio.timeout(30):
        assert await collector._stranded([]) == []
    shutil.rmtree(clone.parent)
    clone.parent.symlink_to(tmp_path)
    assert clones_in(clone.parent) == []
