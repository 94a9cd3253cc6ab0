"""Plumbing over bare repositories: one function a git command, no work trees.

Every command runs with a fixed environment (no user or system configuration), a time limit and a bound on how many run
at once. Refs are read straight from their files: a comparison of tips must not cost a process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agensh.clock import Clock, SystemClock
from agensh.embedded.forge import objects
from agensh.embedded.forge.leftovers import Leftovers
from agensh.embedded.forge.objects import ZERO
from agensh.errors import AgenshError
from agensh.outage import NO_ROOM

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
SHA = re.compile(r"[0-9a-f]{40}")
PROCESSES = 8
LONGEST_BRANCH = 240  # bytes; a file of that name and its lock have to fit into a folder
# What says that there is no file of that name, however odd the name.
NO_REF = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}

CONFIG = {
    "safe.directory": "*",  # the data folder may belong to another user than the one who runs the server (root in CI)
    "gc.auto": "0",
    "receive.autogc": "false",
    "receive.hideRefs": "refs/pull",
    "http.receivepack": "true",
    "uploadpack.allowFilter": "true",
    "uploadpack.allowAnySHA1InWant": "true",
    "core.logAllRefUpdates": "false",
    # Packing refs locks each in turn, and a slow disk makes that last: whoever wants to move one waits (milliseconds).
    "core.filesRefLockTimeout": "10000",
    "core.packedRefsTimeout": "10000",
    "core.quotePath": "false",
    "merge.renames": "true",
}


class GitError(AgenshError):
    """A git command failed."""

    def __init__(self, command: str, code: int, message: str) -> None:
        super().__init__(f"git {command} ended with {code}: {message.strip()[:2000]}")
        self.code = code
        self.text = message

    @property
    def no_room(self) -> bool:
        """Say whether git found the disk full, or a quota used up."""
        return any(os.strerror(number) in self.text for number in NO_ROOM) or -self.code == signal.SIGXFSZ


@dataclass(frozen=True, slots=True)
class Person:
    """Who wrote or committed; `when` is epoch seconds."""

    name: str
    email: str
    when: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace").strip()


def environment(config: Mapping[str, str] = CONFIG) -> dict[str, str]:
    """Return the whole environment of a git process of the forge."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_DEFAULT_REF_FORMAT": "files",
        "GIT_DEFAULT_HASH": "sha1",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    for number, (key, value) in enumerate(config.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


def find_git() -> tuple[str, str]:
    """Return the paths of git and of git-http-backend; AgenshError says what is missing (blocking)."""
    git = shutil.which("git")
    if git is None:
        raise AgenshError("git was not found in PATH; install it with your package manager (2.38 or newer).")
    version = subprocess.run([git, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    match = re.search(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < (2, 38):
        raise AgenshError(
            f"git: {version.strip()!r} is too old for the forge; it needs 2.38 or newer (git merge-tree)."
        )
    folder = subprocess.run([git, "--exec-path"], capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    backend = Path(folder) / "git-http-backend"
    if not backend.exists():
        raise AgenshError(f"{backend} is missing; install the part of git that serves HTTP.")
    return git, str(backend)


class _Command:
    """One git process, run in a thread: uvloop copies the whole process in order to start another, which took 5 ms of a
    core for each command, and Python's own start does not."""

    def __init__(
        self, words: list[str], repo: Path, env: Mapping[str, str], stdin: bytes | None, timeout: float
    ) -> None:
        self._words = words
        self._repo = repo
        self._env = env
        self._stdin = stdin
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()

    def run(self) -> tuple[int, bytes, bytes]:
        """Run it to its end (blocking); return code, output and errors. TimeoutExpired after its time."""
        with self._lock:
            if self._killed:
                return -signal.SIGKILL, b"", b""
            self._process = process = subprocess.Popen(
                self._words,
                cwd=self._repo,
                env=self._env,
                stdin=subprocess.DEVNULL if self._stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        with process:
            try:
                out, err = process.communicate(self._stdin, self._timeout)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, err

    def kill(self) -> None:
        """End it, and do not start it any more."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()


class Git:
    """Runs git commands in the repositories of one forge."""

    def __init__(self, *, processes: int = PROCESSES, timeout: float = 300.0, clock: Clock | None = None) -> None:
        self.path, self.backend = find_git()
        self.env = environment()
        self._slots = asyncio.Semaphore(processes)
        self._timeout = timeout
        self.leftovers = Leftovers(clock or SystemClock())

    async def run(
        self,
        repo: Path,
        *arguments: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        ok: tuple[int, ...] = (0,),
    ) -> Done:
        """Run one command; GitError when it ends with a code not in `ok`, or takes too long."""
        command = _Command(
            [self.path, *arguments], repo, {**self.env, "GIT_DIR": str(repo), **(env or {})}, stdin, self._timeout
        )
        async with self._slots:
            try:
                with self.leftovers.working(repo):
                    code, out, err = await asyncio.to_thread(command.run)
            except subprocess.TimeoutExpired as error:
                self.leftovers.suspect(repo)
                raise GitError(arguments[0], -1, f"no end after {self._timeout:g} s") from error
            except BaseException:
                command.kill()
                raise
        if code < 0:
            self.leftovers.suspect(repo)
        if code not in ok:
            raise GitError(arguments[0], code, err.decode(errors="replace"))
        return Done(code, out, err)

    async def init_bare(self, repo: Path, branch: str) -> None:
        """Create an empty bare repository."""
        repo.parent.mkdir(parents=True, exist_ok=True)
        await self.run(
            repo.parent,
            "init",
            "--quiet",
            "--bare",
            f"--initial-branch={branch}",
            str(repo),
            env={"GIT_DIR": str(repo)},
        )

    async def resolve(self, repo: Path, name: str) -> str | None:
        """Return the commit that a branch, tag or (short) hash names, or None."""
        if not name or name.startswith("-") or any(c in name for c in "\0\n ~^:?*[\\"):
            return None
        if (tip := branch_tip(repo, name)) is not None:
            return tip
        done = await self.run(
            repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", ok=(0, 1, 128)
        )
        return done.text if done.code == 0 and SHA.fullmatch(done.text) else None

    async def merge_base(self, repo: Path, one: str, other: str) -> str | None:
        """Return the best common ancestor, or None when the histories are unrelated."""
        done = await self.run(repo, "merge-base", one, other, ok=(0, 1))
        return done.text or None

    async def is_ancestor(self, repo: Path, ancestor: str, commit: str) -> bool:
        """Say whether `commit` contains `ancestor`; False when either is missing."""
        done = await self.run(repo, "merge-base", "--is-ancestor", ancestor, commit, ok=(0, 1, 128))
        return done.code == 0

    async def count(self, repo: Path, revisions: str) -> int:
        """Return how many commits a range such as `a..b` has."""
        return int((await self.run(repo, "rev-list", "--count", revisions)).text)

    async def merge_tree(self, repo: Path, ours: str, theirs: str) -> tuple[str | None, list[str]]:
        """Merge two commits in memory; return the tree and no paths, or None and the paths in conflict."""
        done = await self.run(
            repo,
            "merge-tree",
            "--write-tree",
            "-z",
            "--name-only",
            "--no-messages",
            "--allow-unrelated-histories",
            ours,
            theirs,
            ok=(0, 1),
        )
        parts = [part for part in done.out.decode(errors="replace").split("\0") if part]
        if done.code == 0:
            return parts[0].strip(), []
        return None, parts[1:]

    async def commit_tree(
        self, repo: Path, tree: str, parents: list[str], message: str, author: Person, committer: Person | None = None
    ) -> str:
        """Write a commit and return its hash."""
        by = committer or author
        if objects.plain_text(message) and all(
            objects.plain_name(word) for person in (author, by) for word in (person.name, person.email)
        ):
            lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
            lines += [f"author {_stamped(author)}", f"committer {_stamped(by)}", "", message]
            return objects.write_object(repo, "commit", "\n".join(lines).encode())
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{author.when} +0000",
            "GIT_COMMITTER_NAME": by.name,
            "GIT_COMMITTER_EMAIL": by.email,
            "GIT_COMMITTER_DATE": f"@{by.when} +0000",
        }
        arguments = [part for parent in parents for part in ("-p", parent)]
        done = await self.run(repo, "commit-tree", tree, *arguments, "-F", "-", stdin=message.encode(), env=env)
        return done.text

    async def update_ref(self, repo: Path, ref: str, new: str, old: str) -> bool:
        """Move a ref if it still is at `old` (ZERO: must not exist); False when somebody was quicker."""
        moved = objects.move_ref(repo, ref, new, old)
        if moved is not None:
            return moved
        return await self._change_ref(repo, ref, old, new)

    async def delete_ref(self, repo: Path, ref: str, old: str) -> bool:
        """Delete a ref if it still is at `old`."""
        return await self._change_ref(repo, ref, old, None)

    async def _change_ref(self, repo: Path, ref: str, old: str, new: str | None, *, again: bool = True) -> bool:
        arguments = ("-d", ref, old) if new is None else (ref, new, old)
        self.leftovers.suspect(repo, [ref])
        done = await self.run(repo, "update-ref", *arguments, ok=(0, 1, 128, -signal.SIGKILL))
        now = read_ref(repo, ref)
        # One that was killed may have been done with the ref.
        if done.code == 0 or (done.code == -signal.SIGKILL and now == new):
            return True
        if again and (done.code == -signal.SIGKILL or b"File exists" in done.err):
            await self.leftovers.free(repo)
            return await self._change_ref(repo, ref, old, new, again=False)
        error = GitError("update-ref", done.code, done.err.decode(errors="replace"))
        if error.no_room or (now == (None if old == ZERO else old) and b"lock" not in done.err):
            raise error
        return False

    async def set_head(self, repo: Path, branch: str) -> None:
        """Make `branch` the one a clone checks out."""
        await self.run(repo, "symbolic-ref", "HEAD", f"refs/heads/{branch}")

    async def valid_branch(self, repo: Path, name: str) -> bool:
        """Say whether git allows this branch name."""
        if not name or name.startswith("-") or "\0" in name or len(name.encode()) > LONGEST_BRANCH:
            return False
        if objects.plain_branch(name):
            return True
        return (await self.run(repo, "check-ref-format", f"refs/heads/{name}", ok=(0, 1, 128))).code == 0

    async def write_blob(self, repo: Path, content: bytes) -> str:
        """Write a blob and return its hash."""
        return await asyncio.to_thread(objects.write_object, repo, "blob", content)

    async def trees(self, repo: Path, names: Sequence[str]) -> list[dict[bytes, tuple[bytes, bytes]] | None]:
        """Return mode and binary hash of what the named trees hold (`<commit>:<folder>`); None for what is no tree."""
        request = "".join(f"{name}\n" for name in names).encode()
        data = (await self.run(repo, "cat-file", "--batch", stdin=request)).out
        found: list[dict[bytes, tuple[bytes, bytes]] | None] = []
        at = 0
        for _ in names:
            end = data.index(b"\n", at)
            head = data[at:end].split(b" ")
            at = end + 1
            if head[-1] == b"missing":
                found.append(None)
                continue
            size = int(head[-1])
            found.append(objects.parse_tree(data[at : at + size]) if head[1] == b"tree" else None)
            at += size + 1
        return found

    async def branches(self, repo: Path) -> list[tuple[str, str]]:
        """Return names and tips of all branches, most recently committed first."""
        command = ("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/")
        try:
            done = await self.run(repo, command[0], "--sort=-committerdate", *command[1:])
        except GitError:
            # One commit with a time that git itself cannot read must not hide all branches.
            done = await self.run(repo, *command)
        pairs = (line.split(" ", 1) for line in done.text.split("\n") if line)
        return [(name, sha) for sha, name in pairs]


def _stamped(person: Person) -> str:
    return f"{person.name} <{person.email}> {person.when} +0000"


def read_ref(repo: Path, ref: str) -> str | None:
    """Return the commit a full ref name points to, from the loose or the packed refs; None when there is none."""
    try:
        text = (repo / ref).read_text().strip()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in NO_REF:
            raise
        text = ""
    if SHA.fullmatch(text):
        return text
    try:
        packed = (repo / "packed-refs").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    for line in packed.split("\n"):
        sha, _, name = line.partition(" ")
        if name == ref and SHA.fullmatch(sha):
            return sha
    return None


def branch_tip(repo: Path, branch: str) -> str | None:
    """Return the commit at a branch, or None."""
    if ".." in branch or branch.startswith("/"):
        return None
    return read_ref(repo, f"refs/heads/{branch}")


def has_branches(repo: Path) -> bool:
    """Say whether the repository has any branch."""
    # `os.walk`, unlike `Path.rglob`, bears with folders that git removes meanwhile.
    if any(not name.endswith(".lock") for _, _, files in os.walk(repo / "refs" / "heads") for name in files):
        return True
    try:
        return " refs/heads/" in (repo / "packed-refs").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
