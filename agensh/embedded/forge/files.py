"""Commits made from lists of file changes, through an index file of their own and no work tree."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agensh.embedded.forge.errors import ApiError, unprocessable
from agensh.embedded.forge.git import Git, Person

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
    with tempfile.TemporaryDirectory(prefix="agensh-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        if parent is not None:
            await git.run(repo, "read-tree", parent, env=env)
        lines: list[str] = []
        for change in changes:
            lines += await _lines(git, repo, parent, change)
        await git.run(repo, "update-index", "-z", "--index-info", stdin="\0".join([*lines, ""]).encode(), env=env)
        made = (await git.run(repo, "write-tree", env=env)).text
    return await git.commit_tree(repo, made, [parent] if parent else [], message.rstrip() + "\n", author, committer)


async def _lines(git: Git, repo: Path, parent: str | None, change: Change) -> list[str]:
    path = clean_path(change.path)
    if change.operation not in OPERATIONS:
        raise unprocessable(
            f"operation: {change.operation!r} is not known; allowed are {', '.join(sorted(OPERATIONS))}"
        )
    old_path = clean_path(change.from_path) if change.from_path else path
    old = await lookup(git, repo, parent, old_path) if parent else None
    if change.operation == "create":
        if old is not None:
            raise unprocessable(f"repository file already exists [path: {path}]")
    elif old is None or old.kind != "blob":
        if change.operation != "upload":
            raise ApiError(404, f"repository file does not exist [path: {old_path}]")
    elif change.operation in {"update", "delete"} and not change.sha:
        raise unprocessable("a SHA or commit ID must be provided when updating a file")
    elif change.sha and change.sha != old.sha:
        raise unprocessable(f"sha does not match [given: {change.sha}, expected: {old.sha}]")
    gone = f"0 {'0' * 40}\t"
    if change.operation == "delete":
        return [gone + path]
    if change.operation == "rename" and old is not None and not change.content:
        return [gone + old_path, f"{old.mode} {old.sha}\t{path}"]
    blob = (await git.run(repo, "hash-object", "-w", "--stdin", stdin=change.content)).text
    mode = old.mode if old is not None and old.kind == "blob" else "100644"
    line = f"{mode} {blob}\t{path}"
    return [line] if old_path == path else [gone + old_path, line]
