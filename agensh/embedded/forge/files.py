"""Commits made from lists of file changes, through an index file of their own and no work tree."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agensh.embedded.forge.errors import ApiError, unprocessable
from agensh.embedded.forge.git import Git, Person
from agensh.embedded.forge.objects import format_tree, write_object

OPERATIONS = {"create", "update", "upload", "rename", "delete"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A path in a tree."""

    mode: str
    kind: str
    """blob, tree or commit"""
    sha: str
    size: int
    path: str


@dataclass(frozen=True, slots=True)
class Change:
    """One file to change: an operation of Gitea's, the path, and what the operation needs."""

    operation: str
    path: str
    content: bytes = b""
    sha: str = ""
    from_path: str = ""


def clean_path(path: str) -> str:
    """Return a path that stays inside the tree; 422 for any other."""
    pure = PurePosixPath(path.lstrip("/"))
    if (
        not path
        or str(pure) == "."
        or any(part in {"..", ".git"} for part in pure.parts)
        or "\0" in path
        or "\n" in path
    ):
        raise unprocessable(f"path contains a malformed path component [path: {path}]")
    return str(pure)


async def tree(git: Git, repo: Path, revision: str, *, recursive: bool = False) -> list[Entry]:
    """Return the entries of a tree."""
    options = ["-r", "-t"] if recursive else []
    done = await git.run(repo, "ls-tree", "-z", "-l", *options, revision)
    return [_entry(line) for line in done.out.decode(errors="replace").split("\0") if line]


async def lookup(git: Git, repo: Path, revision: str, path: str) -> Entry | None:
    """Return one entry of a tree, or None."""
    done = await git.run(repo, "ls-tree", "-z", "-l", revision, "--", path, env={"GIT_LITERAL_PATHSPECS": "1"})
    lines = [line for line in done.out.decode(errors="replace").split("\0") if line]
    return _entry(lines[0]) if lines else None


def _entry(line: str) -> Entry:
    about, path = line.split("\t", 1)
    mode, kind, sha, size = about.split()
    return Entry(mode, kind, sha, int(size) if size.isdigit() else 0, path)


async def content(git: Git, repo: Path, sha: str) -> bytes:
    """Return the bytes of a blob."""
    return (await git.run(repo, "cat-file", "blob", sha)).out


async def write_files(
    git: Git,
    repo: Path,
    parent: str | None,
    changes: list[Change],
    message: str,
    author: Person,
    committer: Person | None = None,
) -> str:
    """Return a commit on `parent` (None: the first) with the changes; 422, 404 or 409 as Gitea refuses them."""
    made = await _with_one_file(git, repo, parent, changes) if parent is not None else None
    if made is None:
        made = await _with_files(git, repo, parent, changes)
    return await git.commit_tree(repo, made, [parent] if parent else [], message.rstrip() + "\n", author, committer)


async def _with_one_file(git: Git, repo: Path, parent: str, changes: list[Change]) -> str | None:
    """Return the tree with one new or changed file, which needs one git process; None when it is not that plain."""
    [change, *others] = changes
    if others or change.operation not in {"create", "update", "upload"} or change.from_path:
        return None
    path = clean_path(change.path)
    *folders, name = path.split("/")
    places = ["/".join(folders[:depth]) for depth in range(len(folders) + 1)]
    trees = await git.trees(repo, [f"{parent}:{place}" for place in places])
    for depth, folder in enumerate(folders):
        tree = trees[depth]
        if tree is not None and tree.get(folder.encode(), (b"40000",))[0] != b"40000":
            return None  # a file stands where a folder has to be
    old = (trees[-1] or {}).get(name.encode())
    if old is not None and not old[0].startswith(b"100"):
        return None
    _check(change, path, path, old[1].hex() if old is not None else None)
    mode = old[0] if old is not None else b"100644"
    entry = (mode, bytes.fromhex(await git.write_blob(repo, change.content)))
    for tree, below in zip(reversed(trees), reversed([*folders, name]), strict=True):
        data = format_tree({**(tree or {}), below.encode(): entry})
        entry = (b"40000", bytes.fromhex(await asyncio.to_thread(write_object, repo, "tree", data)))
    return entry[1].hex()


async def _with_files(git: Git, repo: Path, parent: str | None, changes: list[Change]) -> str:
    with tempfile.TemporaryDirectory(prefix="agensh-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        if parent is not None:
            await git.run(repo, "read-tree", parent, env=env)
        lines: list[str] = []
        for change in changes:
            lines += await _lines(git, repo, parent, change)
        await git.run(repo, "update-index", "-z", "--index-info", stdin="\0".join([*lines, ""]).encode(), env=env)
        return (await git.run(repo, "write-tree", env=env)).text


async def _lines(git: Git, repo: Path, parent: str | None, change: Change) -> list[str]:
    path = clean_path(change.path)
    if change.operation not in OPERATIONS:
        raise unprocessable(
            f"operation: {change.operation!r} is not known; allowed are {', '.join(sorted(OPERATIONS))}"
        )
    old_path = clean_path(change.from_path) if change.from_path else path
    old = await lookup(git, repo, parent, old_path) if parent else None
    if change.operation == "create" and old is not None:
        raise unprocessable(f"repository file already exists [path: {path}]")
    _check(change, path, old_path, old.sha if old is not None and old.kind == "blob" else None)
    gone = f"0 {'0' * 40}\t"
    if change.operation == "delete":
        return [gone + path]
    if change.operation == "rename" and old is not None and not change.content:
        return [gone + old_path, f"{old.mode} {old.sha}\t{path}"]
    blob = await git.write_blob(repo, change.content)
    mode = old.mode if old is not None and old.kind == "blob" else "100644"
    line = f"{mode} {blob}\t{path}"
    return [line] if old_path == path else [gone + old_path, line]


def _check(change: Change, path: str, old_path: str, old: str | None) -> None:
    """Refuse a change that does not fit the blob `old` that stands at its path (None: there is none)."""
    if change.operation == "create":
        if old is not None:
            raise unprocessable(f"repository file already exists [path: {path}]")
    elif old is None:
        if change.operation != "upload":
            raise ApiError(404, f"repository file does not exist [path: {old_path}]")
    elif change.operation in {"update", "delete"} and not change.sha:
        raise unprocessable("a SHA or commit ID must be provided when updating a file")
    elif change.sha and change.sha != old:
        raise unprocessable(f"sha does not match [given: {change.sha}, expected: {old}]")
