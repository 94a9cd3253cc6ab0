"""Objects and refs written without a git process, where that is plain enough to be done exactly as git does it.

A process costs some milliseconds of a core, and a small commit took ten of them. What is written here is what git
itself writes: loose objects, and loose refs under git's own lock. Whatever is not plain is left to git: the functions
say so by returning None.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zlib
from pathlib import Path

ZERO = "0" * 40
TRIES = 100
# Git drops some characters from names and at their ends; what has none of them is written as it stands.
_PLAIN_NAME = re.compile(r"[^\x00-\x20.,:;<>\"\\'](?:[^\x00-\x1f<>]*[^\x00-\x20.,:;<>\"\\'])?")
_PLAIN_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:[./][A-Za-z0-9][A-Za-z0-9_-]*)*")


def write_object(repo: Path, kind: str, data: bytes) -> str:
    """Write a loose object (`blob`, `tree`, `commit`) and return its hash (blocking; not flushed, as git does not)."""
    whole, sha = _whole(kind, data), object_hash(kind, data)
    folder = repo / "objects" / sha[:2]
    path = folder / sha[2:]
    if path.exists():
        return sha
    handle, temporary = _temporary(folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(zlib.compress(whole, 1))
        temporary.chmod(0o444)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return sha


def keep_folders(repo: Path) -> None:
    """Make the folders of objects, each with a file that keeps packing from removing it as empty (blocking).

    git makes such a folder and then a file in it, and fails when packing comes between the two. The file's name is that
    of an object half written, which git passes over; only `git prune` removes it.
    """
    for number in range(256):
        kept = repo / "objects" / f"{number:02x}" / "tmp_obj_kept"
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            kept.touch()


def _temporary(folder: Path) -> tuple[int, Path]:
    """Open a new file in a folder of objects; packing removes the folder whenever it finds it empty."""
    tries = 0
    while True:
        try:
            folder.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix="tmp_obj_")
        except (FileNotFoundError, FileExistsError):
            tries += 1
            if tries == TRIES:
                raise
        else:
            return handle, Path(name)


def object_hash(kind: str, data: bytes) -> str:
    """Return the hash of an object."""
    return hashlib.sha1(_whole(kind, data), usedforsecurity=False).hexdigest()


def _whole(kind: str, data: bytes) -> bytes:
    return f"{kind} {len(data)}\0".encode() + data


def plain_branch(name: str) -> bool:
    """Say whether a branch name is surely one that git allows; False when git has to be asked."""
    return _PLAIN_BRANCH.fullmatch(name) is not None and not any(part.endswith(".lock") for part in name.split("/"))


def plain_text(text: str) -> bool:
    """Say whether git would write a commit message as it stands."""
    return "\0" not in text and text.endswith("\n") and _encodes(text)


def plain_name(name: str) -> bool:
    """Say whether git would write a person's name or address as it stands."""
    return _PLAIN_NAME.fullmatch(name) is not None and _encodes(name)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_tree(data: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Return the entries of a tree object: mode and binary hash by name."""
    entries: dict[bytes, tuple[bytes, bytes]] = {}
    at = 0
    while at < len(data):
        blank = data.index(b" ", at)
        end = data.index(b"\0", blank)
        entries[data[blank + 1 : end]] = (data[at:blank], data[end + 1 : end + 21])
        at = end + 21
    return entries


def format_tree(entries: dict[bytes, tuple[bytes, bytes]]) -> bytes:
    """Return the tree object of some entries; folders sort as if their names ended with a slash."""
    ordered = sorted(entries.items(), key=lambda item: item[0] + (b"/" if item[1][0] == b"40000" else b""))
    return b"".join(mode + b" " + name + b"\0" + sha for name, (mode, sha) in ordered)


def move_ref(repo: Path, ref: str, new: str, old: str) -> bool | None:
    """Move a ref from `old` (ZERO: must not exist) to `new`; False when it is elsewhere, None: ask git.

    It holds `<ref>.lock` meanwhile, as git does, and reads the packed refs under it (blocking).
    """
    path, lock = repo / ref, repo / f"{ref}.lock"
    if (repo / "hooks" / "reference-transaction").exists():
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # a ref stands where a folder has to be
    try:
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return None  # it is locked, and git waits its turn; or git has just removed the empty folder
    ours = True
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{new}\n")
        if path.is_dir():
            return None
        packed = _packed(repo, ref)
        try:
            now = path.read_text().strip()
        except FileNotFoundError:
            now = packed.get(ref, ZERO)
            if now == ZERO and packed:
                return None  # one is part of the other's name
        if now != old:
            return False
        lock.rename(path)
        ours = False  # a lock of that name is another's from here on
    except IsADirectoryError:
        return None  # git is just making a folder of that name
    finally:
        if ours:
            lock.unlink(missing_ok=True)
    return True


def _packed(repo: Path, ref: str) -> dict[str, str]:
    """Return of the packed refs this one, and those whose name holds it or is held by it as a folder."""
    try:
        text = (repo / "packed-refs").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    found = {}
    for line in text.split("\n"):
        sha, _, name = line.partition(" ")
        if name and (name == ref or name.startswith(f"{ref}/") or ref.startswith(f"{name}/")) and sha[:1] not in "#^":
            found[name] = sha
    return found
