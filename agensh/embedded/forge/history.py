"""Commits, changed files and diffs, read from git and parsed once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from agensh.embedded.forge.git import Git, Person

# NUL is the only character that nobody can write into a name or a message.
_FIELDS = ("%H", "%T", "%P", "%an", "%ae", "%at", "%cn", "%ce", "%ct", "%B")
_FORMAT = "%x00" + "".join(f"{field}%x00" for field in _FIELDS)
_LATEST = 253_402_300_799  # the end of the year 9999
_KINDS = {"A": "added", "M": "modified", "D": "removed", "T": "modified"}


@dataclass(slots=True)
class CommitInfo:
    """One commit; `files` and `stats` only when asked for."""

    sha: str
    tree: str
    parents: list[str]
    author: Person
    committer: Person
    message: str
    files: list[tuple[str, str]] = field(default_factory=list)
    """(path, added|modified|removed)"""
    additions: int = 0
    deletions: int = 0


@dataclass(slots=True)
class FileChange:
    """One file of a diff."""

    path: str
    status: str
    """added, changed, deleted or renamed, in Gitea's words."""
    additions: int
    deletions: int
    previous: str | None = None


async def commits(
    git: Git,
    repo: Path,
    *revisions: str,
    skip: int = 0,
    limit: int | None = None,
    path: str = "",
    details: bool = False,
) -> list[CommitInfo]:
    """Return the commits of a range, newest first; `details` adds files and line counts."""
    arguments = ["log", f"--format={_FORMAT}", f"--skip={skip}"]
    if limit is not None:
        arguments.append(f"--max-count={limit}")
    if details:
        arguments += ["--raw", "--numstat", "--no-renames", "--root", "-m", "--first-parent"]
    arguments += [*revisions, "--"]
    if path:
        arguments.append(path)
    done = await git.run(repo, *arguments, env={"GIT_LITERAL_PATHSPECS": "1"})
    parts = done.out.decode(errors="replace").split("\0")[1:]
    width = len(_FIELDS) + 1
    return [_parse(parts[start : start + width]) for start in range(0, len(parts), width)]


async def commit(git: Git, repo: Path, sha: str, *, details: bool = False) -> CommitInfo:
    """Return one commit."""
    return (await commits(git, repo, sha, limit=1, details=details))[0]


def seconds_of(text: str) -> int:
    """Return a time of git's (epoch seconds); 0 for one that a commit has wrong, the end of time for one beyond it."""
    return min(int(text), _LATEST) if text.isascii() and text.isdigit() else 0


def _parse(fields: list[str]) -> CommitInfo:
    sha, tree, parents, an, ae, at, cn, ce, ct, message, rest = fields
    author, committer = Person(an, ae, seconds_of(at)), Person(cn, ce, seconds_of(ct))
    info = CommitInfo(sha, tree, parents.split(), author, committer, message.rstrip("\n") + "\n")
    for line in rest.split("\n"):
        if line.startswith(":"):
            kind, _, path = line.rpartition("\t")
            info.files.append((path, _KINDS.get(kind[-1], "modified")))
        elif line.count("\t") == 2:
            plus, minus, _ = line.split("\t")
            info.additions += int(plus) if plus.isdigit() else 0
            info.deletions += int(minus) if minus.isdigit() else 0
    return info


async def changes(git: Git, repo: Path, old: str, new: str) -> list[FileChange]:
    """Return what differs between two commits or trees, file by file."""
    done = await git.run(repo, "diff-tree", "-r", "-M", "-z", "--raw", "--numstat", old, new)
    parts = done.out.decode(errors="replace").split("\0")
    found: dict[str, FileChange] = {}
    at = 0
    while at < len(parts) and parts[at]:
        if parts[at].startswith(":"):
            kind = parts[at].rsplit(" ", 1)[1][0]
            if kind in "RC":
                found[parts[at + 2]] = FileChange(parts[at + 2], "renamed", 0, 0, parts[at + 1])
                at += 3
            else:
                status = {"A": "added", "D": "deleted"}.get(kind, "changed")
                found[parts[at + 1]] = FileChange(parts[at + 1], status, 0, 0)
                at += 2
            continue
        plus, minus, path = parts[at].split("\t", 2)
        if path:
            at += 1
        else:  # a rename: the two names follow
            path = parts[at + 2]
            at += 3
        entry = found[path]
        entry.additions = int(plus) if plus.isdigit() else 0
        entry.deletions = int(minus) if minus.isdigit() else 0
    return list(found.values())


async def totals(git: Git, repo: Path, old: str, new: str) -> tuple[int, int, int]:
    """Return added lines, deleted lines and changed files between two commits."""
    text = (await git.run(repo, "diff-tree", "-r", "-M", "--shortstat", old, new)).text
    numbers = {word: int(count) for count, word in re.findall(r"(\d+) (file|insertion|deletion)", text)}
    return numbers.get("insertion", 0), numbers.get("deletion", 0), numbers.get("file", 0)
