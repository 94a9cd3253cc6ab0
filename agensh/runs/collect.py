"""Gathers what the services know about a run into `record/`, so that a report needs no running service.

Read-only towards the services and safe to repeat: every file is written whole or not at all. What happened inside the
node hosts (turns, tool calls, events, notices) is in the runtime database already and is not copied.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.commands import run_command
from agensh.errors import AgenshError
from agensh.gateway.ledger import read_requests
from agensh.identity import put_in_place, write_private_json
from agensh.rundir import RunDir, RunInfo, RunSecrets
from agensh.runs.alone import alone_at, remove_stale_locks
from agensh.runs.clones import Clone, clones_in

GIT_TIMEOUT = 120.0  # seconds
HISTORY_TIMEOUT = 120.0  # seconds
USAGE = "usage.jsonl"
MOST_POSTS = 1_000_000  # of one channel
LATEST = 253_402_300_799.0  # the end of the year 9999
MOST_STRANDED = 10_000  # commits of one clone


@dataclass(frozen=True, slots=True)
class MainCommit:
    """A commit on the first-parent history of main."""

    sha: str
    at: float
    author: str
    subject: str


class GitFailed(AgenshError):
    """A git command failed."""


async def git(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, given: str | None = None
) -> str:
    """Run git without the user's configuration and return its output; GitFailed names the command and its error.

    `given` is what it reads from standard input.
    """
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **(env or {}),
    }
    try:
        code, out, err = await run_command(
            ["git", *arguments], seconds=GIT_TIMEOUT, env=environment, cwd=cwd, given=(given or "").encode()
        )
    except TimeoutError as error:
        raise GitFailed(f"git {arguments[0]} did not end within {GIT_TIMEOUT:g} s.") from error
    if code:
        raise GitFailed(f"git {arguments[0]} failed ({code}): {err.decode(errors='replace').strip()[-500:]}")
    return out.decode(errors="replace")


class Collector:
    """Copies the record of one run from its services into `record/`."""

    def __init__(self, run: RunDir, info: RunInfo, secrets: RunSecrets) -> None:
        self._run = run
        self._info = info
        self._secrets = secrets
        self.folder = run.path / "record"
        self.folder.mkdir(exist_ok=True)

    @property
    def mirror(self) -> Path:
        """A mirror of the team's repository: every branch with its history."""
        return self.folder / "workspace.git"

    async def collect(self) -> None:
        """Copy everything; the first failure is raised after all parts were tried. Waits for another that copies."""
        async with alone_at(self.folder):
            if self._info.baseline:
                parts = [self._repository(str(self._run.workspace), {}, []), self.usage()]
            else:
                parts = [self.entries(), self.posts(), self.forge(), self.usage()]
            results = await asyncio.gather(*parts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def entries(self) -> int:
        """Copy the whole history of the board into `record/entries.json`; return how many entries it has."""
        entries: list[dict[str, Any]] = []
        async with BoardClient(self._info.urls.board, self._secrets.board_admin, self._info.board) as board:
            # The listing leaves expired and released claims out; the stream is the whole history.
            head = await board.head()
            if head:
                try:
                    async with asyncio.timeout(HISTORY_TIMEOUT), aclosing(board.stream(0)) as history:
                        async for entry in history:
                            entries.append(entry.to_json())
                            if entry.seq >= head:
                                break
                except TimeoutError as error:
                    raise AgenshError(
                        f"The board sent {len(entries)} of {head} entries within {HISTORY_TIMEOUT:g} s."
                    ) from error
        write_private_json(self.folder / "entries.json", entries)
        return len(entries)

    async def posts(self) -> int:
        """Copy the posts of the team's channel and of the workers' direct channels; return how many there are."""
        posts: dict[str, dict[str, Any]] = {}
        read: set[str] = set()  # channels: each is one of several workers, the task channel of all
        names = {worker.chat_user_id: name for name, worker in self._secrets.workers.items()}
        for worker in self._secrets.workers.values():
            async with MattermostClient(self._info.urls.chat, token=worker.chat_token) as chat:
                for channel in await chat.my_channels():
                    if channel.id in read or (channel.type != "D" and channel.name != self._info.channel):
                        continue
                    read.add(channel.id)
                    for post in await chat.posts(channel.id, limit=MOST_POSTS):
                        if post.id in posts or post.type:
                            continue
                        posts[post.id] = {
                            "id": post.id,
                            "at": post.create_at / 1000,
                            "direct": channel.type == "D",
                            "channel": channel.name,
                            "sender": names.get(post.user_id, post.user_id),
                            "root": post.root_id,
                            "message": post.message,
                        }
        # The chat greets the owner of a new bot by a direct message; only the team's own words belong to the record.
        said = sorted((post for post in posts.values() if post["sender"] in self._secrets.workers), key=_when)
        write_private_json(self.folder / "posts.json", said)
        return len(said)

    async def usage(self) -> int:
        """Copy the gateway's requests into `record/usage.jsonl`, one a line; return how many there are."""
        if self._info.spec.gateway is None:
            return 0
        count = 0
        target = self.folder / USAGE
        partial = target.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            async for row in read_requests(self._run.gateway_url):
                file.write(json.dumps(row) + "\n")
                count += 1
        partial.chmod(0o600)
        put_in_place(partial, target)
        return count

    async def forge(self) -> int:
        """Copy pull requests and the repository; return how many pull requests are merged."""
        info = self._info
        admin = self._secrets.forge_admin
        async with GiteaClient(info.urls.forge, token=admin.token) as forge:
            pulls: list[dict[str, Any]] = []
            page = 1
            while found := await forge.pulls(info.owner, info.repository, state="all", page=page):
                pulls += [asdict(pull) for pull in found]
                page += 1
        write_private_json(self.folder / "pulls.json", pulls)
        url = f"{info.urls.forge}/{info.owner}/{info.repository}.git"
        # The token travels in the environment of one git command: neither its arguments nor any file show it.
        env = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "credential.helper",
            "GIT_CONFIG_VALUE_0": '!f() { echo "username=$AGENSH_GIT_USER"; echo "password=$AGENSH_GIT_TOKEN"; }; f',
            "AGENSH_GIT_USER": admin.name,
            "AGENSH_GIT_TOKEN": admin.token,
        }
        return await self._repository(url, env, pulls)

    async def _repository(self, url: str, env: dict[str, str], pulls: list[dict[str, Any]]) -> int:
        if not (self.mirror / "HEAD").exists():
            await git("init", "--quiet", "--bare", "--initial-branch=main", str(self.mirror))
        await asyncio.to_thread(remove_stale_locks, self.mirror)
        # Packing goes on in the background, and would be cut off with the process, or meet the next copy.
        fetch = ("fetch", "--quiet", "--prune", "--no-auto-gc")
        await git(*fetch, url, "+refs/heads/*:refs/heads/*", cwd=self.mirror, env=env)
        commits = await main_history(self.mirror)
        write_private_json(self.folder / "main.json", [asdict(commit) for commit in commits])
        write_private_json(self.folder / "stranded.json", await self._stranded(pulls))
        return sum(bool(pull["merged"]) for pull in pulls)

    async def _stranded(self, pulls: list[dict[str, Any]]) -> list[dict[str, str]]:
        """List the commits that did not reach main: pushed ones, and ones that never left a worker's clone.

        The heads of merged pull requests do not count (a squash or a rebase brings the change, not the commit).
        """
        merged = [pull["head_sha"] for pull in pulls if pull["merged"]]
        known = [sha for sha in merged if await _has(self.mirror, sha)]
        pushed = await git("rev-list", "--no-merges", "--branches", "--not", "main", *known, cwd=self.mirror)
        stranded = [{"sha": sha, "where": "branch"} for sha in pushed.split()]
        everywhere = set((await git("rev-list", "--all", *known, cwd=self.mirror)).split())
        for worker in self._secrets.workers:
            for clone in await asyncio.to_thread(clones_in, self._run.worker(worker) / "work"):
                local = await self._unpushed(clone)
                stranded += [{"sha": sha, "where": worker} for sha in local if sha not in everywhere]
        return stranded

    async def _unpushed(self, clone: Clone) -> list[str]:
        """Return the commits of a clone's branches that were never pushed, newest first; at most MOST_STRANDED."""
        wanted = [*sorted(clone.heads), *(f"^{sha}" for sha in sorted(clone.remotes))]
        # The tables that git keeps beside the objects, to be quicker, are the worker's word as well.
        plain = ("-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false")
        command = ("rev-list", "--no-merges", "--ignore-missing", f"--max-count={MOST_STRANDED}", "--stdin")
        try:
            found = await git(
                *plain, *command, cwd=self.mirror, env=clone.environment(), given="\n".join(wanted) + "\n"
            )
        except GitFailed:
            return []  # cut off in the making, or not to be read as a repository
        return found.split()


def _when(post: dict[str, Any]) -> float:
    return float(post["at"])


async def _has(repository: Path, sha: str) -> bool:
    try:
        await git("cat-file", "-e", f"{sha}^{{commit}}", cwd=repository)
    except GitFailed:
        return False
    return True


async def main_history(repository: Path) -> list[MainCommit]:
    """Return the first-parent history of main, oldest first; empty when there is no main."""
    try:
        log = await git("log", "--first-parent", "--reverse", "--format=%H%x00%ct%x00%an%x00%s", "main", cwd=repository)
    except GitFailed:
        return []
    commits = []
    # A subject may hold what else ends a line for Python, and a commit may have no time, or one far out of bounds.
    for line in log.rstrip("\n").split("\n"):
        sha, at, author, subject = line.split("\0", 3)
        commits.append(MainCommit(sha, min(float(at or 0), LATEST), author, subject))
    return commits
