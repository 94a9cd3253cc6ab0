"""The first commit of a repository, from whatever a folder holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agensh.provision.seed import push_main
from agensh.runs.collect import git, main_history


def empty_folders(source: Path) -> None:
    (source / "src" / "deep").mkdir(parents=True)


def ignored(source: Path) -> None:
    (source / ".git-not").mkdir()
    (source / "build").mkdir()
    (source / "build" / ".gitignore").write_text("*\n")


def odd_names(source: Path) -> None:
    (source / "-n ä\n").write_text("x")
    (source / ":(top)").write_text("x")


@pytest.mark.parametrize(
    ("fill", "files"),
    [(empty_folders, ["README.md"]), (ignored, ["README.md"]), (odd_names, ["-n ä\n", ":(top)"])],
)
async def test_a_folder_becomes_one_commit(tmp_path: Path, fill: Callable[[Path], None], files: list[str]) -> None:
    source, target = tmp_path / "a folder: ü", tmp_path / "target.git"
    source.mkdir()
    fill(source)
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(target))
    for _ in range(2):  # the same commit again
        await push_main(source, str(target), readme="# Goal\n", at=1_800_000_000.0)
    assert len(await main_history(target)) == 1
    assert (await git("ls-tree", "-rz", "--name-only", "main", cwd=target)).split("\0")[:-1] == files
