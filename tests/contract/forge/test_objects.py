"""Objects and refs that the forge writes itself are those that git writes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agensh.embedded.forge import objects
from agensh.embedded.forge.errors import ApiError
from agensh.embedded.forge.files import Change, write_files
from agensh.embedded.forge.git import Git, Person, read_ref
from agensh.embedded.forge.objects import ZERO, move_ref, plain_branch, write_object

BY = Person("Ann O'Neil", "ann@example.org", 1_800_000_000)
MAIN = "refs/heads/main"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "work.git"
    asyncio.run(Git().init_bare(path, "main"))
    return path


def git(repo: Path, *arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> str:
    whole = {**Git().env, "GIT_DIR": str(repo), **(env or {})}
    done = subprocess.run(["git", *arguments], input=stdin, env=whole, capture_output=True, check=True, cwd=repo)
    return done.stdout.decode().strip()


@pytest.mark.parametrize("content", [b"", b"text\n", bytes(range(256)) * 300])
def test_a_blob_is_gits(repo: Path, content: bytes) -> None:
    sha = write_object(repo, "blob", content)
    assert sha == objects.object_hash("blob", content) == git(repo, "hash-object", "--stdin", stdin=content)
    assert write_object(repo, "blob", content) == sha
    assert subprocess.run(
        ["git", "cat-file", "blob", sha], env={**Git().env, "GIT_DIR": str(repo)}, capture_output=True, check=True
    ).stdout == content  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ann", "one line\n"),
        ("Änn Ö", "a subject\n\nand — a body\n"),
        ("O'Neil, A.", "x\n"),
        (" .crud; ", "x\n"),
        ("a<b>c", "x\n"),
        ("ann", "no end of line"),
        ("ann", "two ends\n\n"),
    ],
)
async def test_a_commit_is_gits(repo: Path, name: str, message: str) -> None:
    tree = write_object(repo, "tree", b"")
    author = Person(name, "ann@example.org", 1_800_000_000)
    sha = await Git().commit_tree(repo, tree, [], message, author, BY)
    env = {
        "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": author.email, "GIT_AUTHOR_DATE": f"@{author.when} +0000",
        "GIT_COMMITTER_NAME": BY.name, "GIT_COMMITTER_EMAIL": BY.email, "GIT_COMMITTER_DATE": f"@{BY.when} +0000",
    }  # fmt: skip
    assert sha == git(repo, "commit-tree", tree, "-F", "-", stdin=message.encode(), env=env)


@given(
    name=st.text(alphabet="ab./-_~@{ \\:?*[é", min_size=1, max_size=8) | st.sampled_from(["x.lock", "a.lock/b", "HEAD"])
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plain_branch_name_is_one_that_git_allows(name: str) -> None:
    if plain_branch(name):
        subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=True)


async def test_files_are_committed_as_with_an_index(repo: Path) -> None:
    runner = Git()
    tip = await write_files(runner, repo, None, [Change("create", "README.md", b"hello\n")], "first", BY)
    # Names that sort otherwise as files than as folders, new folders, a folder in a folder, a changed file.
    for path in ("a/b.txt", "a.txt", "a-b/c/d.txt", "a/c.txt", "z"):
        tip = await write_files(runner, repo, tip, [Change("create", path, path.encode())], "more", BY)
    old = objects.object_hash("blob", b"a/b.txt")
    tip = await write_files(runner, repo, tip, [Change("update", "a/b.txt", b"new", sha=old)], "change", BY)
    git(repo, "fsck", "--strict")
    listed = git(repo, "ls-tree", "-r", "--name-only", tip).splitlines()
    assert listed == ["README.md", "a-b/c/d.txt", "a.txt", "a/b.txt", "a/c.txt", "z"]
    assert git(repo, "cat-file", "blob", f"{tip}:a/b.txt") == "new"
    index = {"GIT_INDEX_FILE": str(repo / "other-index")}
    git(repo, "read-tree", tip, env=index)
    assert git(repo, "write-tree", env=index) == git(repo, "rev-parse", f"{tip}^{{tree}}")
    assert int(git(repo, "rev-list", "--count", tip)) == 7


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (Change("create", "dir/x", b""), 422),
        (Change("update", "dir/x", b""), 422),
        (Change("update", "dir/x", b"", sha=ZERO), 422),
        (Change("update", "dir/none", b"", sha=ZERO), 404),
        (Change("create", "dir", b""), 422),
        (Change("delete", "dir/x"), 422),
    ],
)
async def test_a_change_that_does_not_fit_is_refused(repo: Path, change: Change, status: int) -> None:
    runner = Git()
    tip = await write_files(runner, repo, None, [Change("create", "dir/x", b"1")], "first", BY)
    with pytest.raises(ApiError) as refused:
        await write_files(runner, repo, tip, [change], "next", BY)
    assert refused.value.status == status


def test_objects_are_written_while_empty_folders_are_removed(repo: Path) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            for folder in (repo / "objects").iterdir():
                with suppress(OSError):
                    folder.rmdir()

    with ThreadPoolExecutor(2) as pool:
        removing = [pool.submit(remove) for _ in range(2)]
        try:
            written = [write_object(repo, "blob", f"{number}".encode()) for number in range(600)]
        finally:
            stop.set()
        for done in removing:
            done.result()
    assert git(repo, "cat-file", "-p", written[-1]) == "599"


async def commits(repo: Path, count: int) -> list[str]:
    tree = write_object(repo, "tree", b"")
    return [await Git().commit_tree(repo, tree, [], f"{number}\n", BY) for number in range(count)]


async def test_a_ref_moves_only_from_where_it_is(repo: Path) -> None:
    one, two = await commits(repo, 2)
    assert move_ref(repo, MAIN, one, two) is False
    assert move_ref(repo, MAIN, one, ZERO) is True
    assert move_ref(repo, MAIN, two, ZERO) is False
    assert git(repo, "rev-parse", MAIN) == one
    git(repo, "pack-refs", "--all")
    assert not (repo / MAIN).exists()
    assert move_ref(repo, MAIN, two, ZERO) is False
    assert move_ref(repo, MAIN, two, one) is True
    assert git(repo, "rev-parse", MAIN) == two
    (repo / f"{MAIN}.lock").touch()
    assert move_ref(repo, MAIN, one, two) is None, "another holds it"
    assert (repo / f"{MAIN}.lock").exists()


async def test_a_move_takes_nobody_elses_lock_away(repo: Path) -> None:
    one, two = await commits(repo, 2)
    assert move_ref(repo, MAIN, one, ZERO) is True
    lock = repo / f"{MAIN}.lock"
    stop = threading.Event()
    lost = 0

    def hold() -> None:
        nonlocal lost
        while not stop.is_set():
            with suppress(FileExistsError):
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
                time.sleep(0)
                lost += not lock.exists()
                lock.unlink(missing_ok=True)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        old, new = one, two
        try:
            for _ in range(1000):
                if move_ref(repo, MAIN, new, old):
                    old, new = new, old
        finally:
            stop.set()
        holding.result()
    assert lost == 0


async def test_a_folder_of_that_name_that_comes_meanwhile_is_left_to_git(repo: Path) -> None:
    [one] = await commits(repo, 1)
    folder = repo / "refs/heads/a"
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with suppress(OSError):
                folder.mkdir()
                folder.rmdir()

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(come_and_go)
        try:
            for _ in range(500):
                if move_ref(repo, "refs/heads/a", one, ZERO):
                    folder.unlink()
        finally:
            stop.set()
        coming.result()


async def test_a_move_waits_while_another_holds_the_ref(repo: Path) -> None:
    one, two = await commits(repo, 2)
    assert move_ref(repo, MAIN, one, ZERO) is True
    lock = repo / f"{MAIN}.lock"
    lock.touch()
    moving = asyncio.create_task(Git().update_ref(repo, MAIN, two, one))
    # Longer than git waits unless told otherwise (0.1 s).
    done, _ = await asyncio.wait([moving], timeout=0.5)
    assert not done
    lock.unlink()
    assert await moving is True
    assert git(repo, "rev-parse", MAIN) == two


@pytest.mark.parametrize("packed", [False, True])
async def test_a_ref_inside_another_is_left_to_git(repo: Path, packed: bool) -> None:
    [one] = await commits(repo, 1)
    git(repo, "update-ref", "refs/heads/a/b", one)
    if packed:
        git(repo, "pack-refs", "--all")
    assert move_ref(repo, "refs/heads/a", one, ZERO) is None
    assert move_ref(repo, "refs/heads/a/b/c", one, ZERO) is None
    assert git(repo, "for-each-ref", "--format=%(refname)") == "refs/heads/a/b"
    assert move_ref(repo, "refs/heads/a/c", one, ZERO) is True
    git(repo, "fsck")


async def test_hooks_are_left_to_git(repo: Path) -> None:
    [one] = await commits(repo, 1)
    (repo / "hooks").mkdir(exist_ok=True)
    (repo / "hooks" / "reference-transaction").write_text("#!/bin/sh\nexit 1\n")
    assert move_ref(repo, MAIN, one, ZERO) is None


async def test_of_many_moves_at_once_one_wins(repo: Path) -> None:
    base, *tips = await commits(repo, 9)
    assert move_ref(repo, MAIN, base, ZERO) is True
    ours = [Git().update_ref(repo, MAIN, tip, base) for tip in tips[:4]]
    gits = [Git().run(repo, "update-ref", MAIN, tip, base, ok=(0, 1, 128)) for tip in tips[4:]]
    done = await asyncio.gather(*ours, *gits)
    won = [tip for tip, end in zip(tips, done, strict=True) if end is True or getattr(end, "code", 1) == 0]
    assert len(won) == 1
    assert read_ref(repo, MAIN) == won[0]
