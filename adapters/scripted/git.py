"""The worker's clone: one branch a piece of work, main merged in, conflicts resolved where the files allow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from adapters.scripted.shell import Done, Shell
from agensh.errors import AgenshError

Resolver = Callable[[str, str, str, str], str | None]
"""(path, base, ours, theirs) -> the merged text, or None when this file needs somebody to think."""
_NETWORK_TRIES = 3


class GitFailed(AgenshError):
    """A git command failed."""


class Clone:
    """A working copy of the team's repository."""

    def __init__(self, shell: Shell, path: Path, url: str, worker: str) -> None:
        self.shell = shell
        self.path = path
        self.url = url
        self.worker = worker

    async def ensure(self) -> None:
        """Have a usable clone: made now, or cleaned of what an interrupted command left."""
        parent, name = self.path.parent, self.path.name
        if (await self.shell.run(["find", f"{name}/.git", "-name", "*.lock", "-delete"], parent)).ok:
            if await self.shell.exists(self.path / ".git/MERGE_HEAD"):
                await self._git("merge", "--abort", check=False)
            return
        await self.shell.remove(self.path)
        # Made beside and moved, so that a clone that was cut off is never taken for a whole one.
        fresh = f"{name}.part"
        await self.shell.remove(parent / fresh)
        clone = ["git", "clone", "--quiet", self.url, fresh]
        who = [f"--config=user.name={self.worker}", f"--config=user.email={self.worker}@agensh.invalid"]
        await self._network([*clone, *who], cwd=parent)
        await self.shell.run(["mv", fresh, name], parent)

    async def fetch(self) -> str:
        """Fetch and return the commit of main."""
        main = ["git", "rev-parse", "--verify", "origin/main"]
        done = await self._network(["git", "fetch", "--quiet", "--prune", "origin"], main, cwd=self.path)
        return done.output.split()[-1]

    async def commit_of(self, name: str) -> str:
        """Return the commit a name stands for."""
        return (await self._git("rev-parse", "--verify", name)).output.strip()

    async def start(self, branch: str) -> None:
        """Check out `branch`, made from main as fetched; what lay about uncommitted is dropped."""
        checkout = ["git", "checkout", "--quiet", "--force", "-B", branch, "origin/main"]
        _checked(checkout, await self.shell.run_all(checkout, ["git", "clean", "-fdq"], cwd=self.path))

    async def resume(self, branch: str) -> bool:
        """Check out a branch made earlier; False when there is none."""
        done = await self._git("checkout", "--quiet", "--force", branch, check=False)
        return done.ok

    async def show(self, path: str, commit: str = "origin/main") -> str | None:
        """Return a file as a commit has it, None when it has none."""
        done = await self._git("show", f"{commit}:{path}", check=False)
        return done.output if done.ok else None

    async def commit(self, message: str) -> bool:
        """Commit all changes; False when there is none."""
        commit = ["git", "commit", "--quiet", "-m", message]
        done = await self.shell.run_all(["git", "add", "--all"], commit, cwd=self.path)
        if not done.ok and "nothing to commit" in done.output:
            return False
        _checked(commit, done)
        return True

    async def merge_main(self, resolve: Resolver) -> tuple[bool, list[str]]:
        """Merge main, as fetched, into the branch; return (merged, the files that were in conflict).

        Conflicts go through `resolve`; when one cannot be resolved the merge is taken back.
        """
        done = await self._git("merge", "--no-edit", "origin/main", check=False)
        if done.ok:
            return True, []
        conflicts = (await self._git("diff", "--name-only", "--diff-filter=U")).output.split()
        if not conflicts:
            raise GitFailed(f"git merge failed: {done.output.strip()[-300:]}")
        for path in conflicts:
            base, ours, theirs = [await self.show(path, f":{stage}") or "" for stage in (1, 2, 3)]
            text = resolve(path, base, ours, theirs)
            if text is None:
                await self._git("merge", "--abort")
                return False, conflicts
            await self.shell.write(self.path, {path: text})
        commit = ["git", "commit", "--quiet", "--no-edit"]
        _checked(commit, await self.shell.run_all(["git", "add", "--all"], commit, cwd=self.path))
        return True, conflicts

    async def push(self, branch: str) -> bool:
        """Push the branch; False when the forge rejected it (it has commits we have not)."""
        done = await self._git("push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", check=False)
        if done.ok:
            return True
        if "rejected" in done.output:
            return False
        done = await self._network(["git", "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}"], cwd=self.path)
        return done.ok

    async def take_in(self, branch: str) -> bool:
        """Merge what the forge has of our own branch, after a rejected push; False when that conflicts."""
        await self.fetch()
        done = await self._git("merge", "--no-edit", f"origin/{branch}", check=False)
        if not done.ok:
            await self._git("merge", "--abort", check=False)
        return done.ok

    async def changed(self, old: str, new: str) -> list[str]:
        """Return the paths that differ between two commits."""
        return (await self._git("diff", "--name-only", "--no-renames", old, new)).output.splitlines()

    async def leftovers(self) -> list[str]:
        """Return my branches, here and on the forge, with commits that main lacks."""
        patterns = [f"refs/heads/{self.worker}/", f"refs/remotes/origin/{self.worker}/"]
        shown = await self._git("for-each-ref", "--format=%(refname)", "--no-merged=origin/main", *patterns)
        names = {name.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/") for name in shown.output.split()}
        return sorted(names)

    async def discard(self, branch: str) -> None:
        """Give up a branch, here and on the forge, which closes its pull request."""
        await self._git("checkout", "--quiet", "--force", "--detach", "origin/main", check=False)
        await self._git("branch", "--quiet", "-D", branch, check=False)
        if (await self._git("rev-parse", "--verify", "--quiet", f"origin/{branch}", check=False)).ok:
            await self._git("push", "--quiet", "origin", "--delete", branch, check=False)

    async def last_author(self, path: str) -> str:
        """Return who changed a file last on main; empty when nobody."""
        return (await self._git("log", "-1", "--format=%an", "origin/main", "--", path, check=False)).output.strip()

    async def _network(self, *commands: Sequence[str], cwd: Path) -> Done:
        for _ in range(_NETWORK_TRIES):
            done = await self.shell.run_all(*commands, cwd=cwd)
            if done.ok:
                break
        return _checked(commands[0], done)

    async def _git(self, *arguments: str, check: bool = True) -> Done:
        command = ["git", *arguments]
        done = await self.shell.run(command, self.path)
        return _checked(command, done) if check else done


def _checked(command: Sequence[str], done: Done) -> Done:
    if not done.ok:
        raise GitFailed(f"{' '.join(command[:2])} failed: {done.output.strip()[-300:]}")
    return done


def union(base: str, ours: str, theirs: str) -> str | None:
    """Merge three versions of a registration file in which both sides only added lines.

    Both sides' new lines stay, each once, theirs first (it is what main has). None when a side took away or moved a
    line of the base: that needs somebody to think.
    """
    their_lines, our_lines, base_lines = theirs.splitlines(), ours.splitlines(), base.splitlines()
    if not _only_added(base_lines, our_lines) or not _only_added(base_lines, their_lines):
        return None
    known = set(their_lines)
    merged = list(their_lines)
    for index, line in enumerate(our_lines):
        if line in known or line in base_lines:
            continue
        # Stand before the next of our lines that theirs has too, so that it lands in the same block.
        after = next((later for later in our_lines[index + 1 :] if later in known and later in base_lines), None)
        place = _last_index(merged, after) if after is not None else len(merged)
        merged.insert(place, line)
    return "\n".join(merged) + "\n"


def _only_added(base: Sequence[str], changed: Sequence[str]) -> bool:
    rest = iter(changed)
    return all(line in rest for line in base)


def _last_index(lines: Sequence[str], wanted: str) -> int:
    return max(index for index, line in enumerate(lines) if line == wanted)
