"""Packed refs with names that only git takes for one."""

from __future__ import annotations

import os
from pathlib import Path

from agensh.clock import iso
from agensh.embedded.forge.git import read_ref
from agensh.runs.collect import git, main_history

WHO = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")


async def repository(folder: Path) -> str:
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(folder))
    tree = (await git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=folder)).strip()
    first = (await git(*WHO, "commit-tree", "-m", "one\x0ctwo\u2028three", tree, cwd=folder)).strip()
    await git("update-ref", "refs/heads/main", first, cwd=folder)
    return first


async def test_no_name_of_a_branch_hides_another(tmp_path: Path) -> None:
    folder = tmp_path / "r.git"
    first = await repository(folder)
    for raw in (b"a\xffb", "c\u2028d".encode(), "e\x85f".encode()):
        await git("update-ref", os.fsdecode(b"refs/heads/" + raw), first, cwd=folder)
    await git("pack-refs", "--all", cwd=folder)
    assert not (folder / "refs" / "heads" / "main").exists()
    for name in ("main", "c\u2028d", "e\x85f"):
        assert read_ref(folder, f"refs/heads/{name}") == first


async def test_the_record_takes_any_subject_and_any_time(tmp_path: Path) -> None:
    folder = tmp_path / "r.git"
    first = await repository(folder)
    tree = (await git("rev-parse", f"{first}^{{tree}}", cwd=folder)).strip()
    shas = [first]
    for time in ("never", "-5", "99999999999999999"):
        who = f"a <a> {time} +0000"
        text = f"tree {tree}\nparent {shas[-1]}\nauthor {who}\ncommitter {who}\n\nstrange time\n"
        command = ("hash-object", "-t", "commit", "-w", "--stdin", "--literally")
        shas.append((await git(*command, cwd=folder, given=text)).strip())
    await git("update-ref", "refs/heads/main", shas[-1], cwd=folder)
    shown = await main_history(folder)
    assert [commit.sha for commit in shown] == shas
    assert {iso(commit.at)[:4] for commit in shown[1:]} <= {"1970", "9999"}
