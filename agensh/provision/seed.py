"""The first commit of a team's repository.

A folder becomes one commit with its files (modes and symbolic links kept, its `.gitignore` obeyed); of a Git repository
its `main` is taken with its history (without a `main`: the branch it is on); with neither there is a README.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from agensh.commands import run_command
from agensh.errors import AgenshError

TIMEOUT = 600.0  # seconds for one command; a push of a large history takes its time
_QUIET_CONFIG = """\
[user]
\tname = Agensh
\temail = agensh@localhost
[safe]
\tdirectory = *
[core]
\thooksPath = /dev/null
[init]
\tdefaultBranch = main
[gc]
\tauto = 0
"""


class SeedFailed(AgenshError):
    """The starting repository could not be pushed."""


async def push_main(source: Path | None, url: str, name: str = "", token: str = "", *, readme: str, at: float) -> None:
    """Push the starting files to `main` of the empty repository at `url`, as the account `name` where it has accounts.

    `at` (epoch seconds) dates the commit, so that a repetition makes the same one. SeedFailed with Git's own words.
    """
    with tempfile.TemporaryDirectory(prefix="agensh-seed-") as folder:
        git = _Git(Path(folder), at)
        if source is not None and is_git_repository(source):
            await git.take(source)
        else:
            await git.commit(source, readme)
        # The credentials go through the environment: arguments can be seen by every user of the machine.
        encoded = base64.b64encode(f"{name}:{token}".encode()).decode()
        env = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {encoded}",
        }
        await git.run("push", "--quiet", url, "refs/heads/main:refs/heads/main", env=env if token else None)


def is_git_repository(path: Path) -> bool:
    """Say whether a folder is a Git repository of its own, bare or not."""
    return (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())


class _Git:
    """Git over a temporary repository, with no configuration but ours."""

    def __init__(self, folder: Path, at: float) -> None:
        self.folder = folder
        self.repository = folder / "seed.git"
        config = folder / "gitconfig"
        config.write_text(_QUIET_CONFIG, encoding="utf-8")
        date = f"{int(at)} +0000"
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "GIT_CONFIG_GLOBAL": str(config),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
            "LC_ALL": "C.UTF-8",
        }

    async def take(self, source: Path) -> None:
        """Fetch `main` of another repository, else the branch it is on."""
        await self.run("init", "--quiet", "--bare", str(self.repository), inside=False)
        heads = await self.run("ls-remote", str(source), "HEAD", "refs/heads/main")
        references = [line.split("\t")[1] for line in heads.splitlines() if "\t" in line]
        if not references:
            raise SeedFailed(f"task.repository: {str(source)!r} has no commit yet; commit something first.")
        wanted = "refs/heads/main" if "refs/heads/main" in references else "HEAD"
        await self.run("fetch", "--quiet", "--no-tags", str(source), f"{wanted}:refs/heads/main")

    async def commit(self, source: Path | None, readme: str) -> None:
        """Commit the files of a folder, or a README when there are none."""
        await self.run("init", "--quiet", "--bare", str(self.repository), inside=False)
        tree = source
        if tree is not None:
            await self.run("add", "--all", ".", tree=tree)
        if tree is None or not await self.run("ls-files"):  # empty folders and what is ignored are nothing to Git
            tree = self.folder / "readme"
            tree.mkdir()
            (tree / "README.md").write_text(readme, encoding="utf-8")
            await self.run("add", "--all", ".", tree=tree)
        await self.run("commit", "--quiet", "--message", "Starting point", tree=tree)

    async def run(
        self, *arguments: str, inside: bool = True, env: Mapping[str, str] | None = None, tree: Path | None = None
    ) -> str:
        """Run Git, over the files of `tree`, and return what it printed; SeedFailed when it fails or takes too long."""
        where = ["--git-dir", str(self.repository)] if inside else []
        where += ["--work-tree", str(tree)] if tree is not None else []
        command = ["git", *where, *arguments]
        try:
            code, output, errors = await run_command(
                command, seconds=TIMEOUT, env={**self._env, **(env or {})}, cwd=tree or self.folder
            )
        except TimeoutError as error:
            raise SeedFailed(f"git {arguments[0]} did not end within {TIMEOUT:g} s.") from error
        if code:
            words = errors.decode(errors="replace").strip()[-1000:]
            raise SeedFailed(f"The starting repository could not be pushed; git {arguments[0]}: {words}")
        return output.decode(errors="replace")
