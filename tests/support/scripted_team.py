"""A small rebuild task and an MCP endpoint in memory, for tests of the scripted worker's CLI.

The task is the real example with few tools. The endpoint has the tools the worker uses, over a bare Git repository; a
test can hold a tool back to catch the worker in the middle of a turn. The integration test uses the real endpoint.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.base import WorkerLaunch
from agensh.serving import open_socket

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "textutils"
TOKEN = "mcp-token"
WORKER = "demo-worker1"


@dataclass(frozen=True, slots=True)
class Task:
    """A rebuild task with few tools."""

    folder: Path
    repository: Path
    """Bare, with the start on main."""

    @property
    def playbook(self) -> Path:
        return self.folder / "playbook"

    @property
    def reference(self) -> Path:
        return self.folder / "reference" / "textutils"

    def prompt(self, *events: str, context: str = "") -> str:
        """Return a turn's prompt, briefing included."""
        return (
            f"# You are `{WORKER}`\n\nThe reference program is at `{self.reference}`.\n"
            f"Clone `{self.repository.as_uri()}` below your current directory. Entries come under "
            "`==== SHARED CONTEXT ====`.\n\n" + "\n".join(events) + f"\n\n==== SHARED CONTEXT ====\n{context}\n"
        )

    def main(self, path: str) -> str:
        """Return a file of main."""
        return git(self.repository, "show", f"main:{path}")

    def has(self, path: str) -> bool:
        """Say whether main has a file."""
        return path in git(self.repository, "ls-tree", "-r", "--name-only", "main").splitlines()


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output."""
    name = ["-c", "user.name=test", "-c", "user.email=test@agensh.invalid"]
    done = subprocess.run(["git", *name, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def make_task(folder: Path, *tools: str) -> Task:
    """Copy the example into `folder` with these tools only, and make its repository."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(EXAMPLE, folder / "task", ignore=ignore)
    page = folder / "task" / "playbook" / "playbook.toml"
    head, *areas = page.read_text().split("[[area]]")
    page.write_text(head + "".join(f"[[area]]{area}" for area in areas if area.split('"')[1] in tools))
    bare = folder / "work.git"
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    seed = folder / "seed"
    shutil.copytree(EXAMPLE / "start", seed)
    git(seed, "init", "--quiet", "--initial-branch=main")
    git(seed, "add", "--all")
    git(seed, "commit", "--quiet", "-m", "Start")
    git(seed, "push", "--quiet", str(bare), "main")
    return Task(folder / "task", bare)


@dataclass
class Endpoint:
    """The tools of one worker in memory."""

    repository: Path
    entries: list[tuple[str, str, str]] = field(default_factory=list)
    """(worker, type, content)"""
    gone: set[int] = field(default_factory=set)
    posts: list[str] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    pulls: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """Lines that the next result carries."""
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """Tools that wait for their event."""
    faster: dict[str, str] = field(default_factory=dict)
    """Peers whose CLAIM with this beginning comes just before the worker's own, once."""
    slower: dict[str, str] = field(default_factory=dict)
    """The same, just after it."""
    refused: set[str] = field(default_factory=set)
    """Branches that are not merged any more."""
    url: str = ""

    def hold(self, tool: str) -> asyncio.Event:
        """Hold a tool back until the event is set."""
        return self.held.setdefault(tool, asyncio.Event())

    def contents(self, type_: str) -> list[str]:
        """Return the contents of the entries of a type."""
        return [content for _, kind, content in self.entries if kind == type_]

    async def _begin(self, tool: str) -> None:
        self.calls.append(tool)
        if tool in self.held:
            await self.held[tool].wait()

    def _end(self, text: str) -> str:
        lines, self.notices = self.notices, []
        return "\n".join([text, "[agensh notices]", *lines]) if lines else text

    async def write(self, type: str, content: str, detail: str = "", key: str = "") -> str:
        await self._begin("board_write")
        if key not in self.keys:
            beginning = content.partition(" ")[0] + " "
            if type == "CLAIM" and (peer := self.faster.pop(beginning, None)):
                self.entries.append((peer, type, content))
            self.entries.append((WORKER, type, content))
            self.keys[key] = f"G{len(self.entries)}"
            if type == "CLAIM" and (peer := self.slower.pop(beginning, None)):
                self.entries.append((peer, type, content))
                self.notices.append(f"[{peer}/CLAIM +0.0m] {content} (G{len(self.entries)})")
            for label in re.findall(r"\bG(\d+)$", content):
                self.gone.add(int(label))
        return self._end(f"status=admitted label={self.keys[key]} overlaps=0\nOn the board.")

    async def read(self, limit: int = 2000, after: int = 0, type: str = "") -> str:
        await self._begin("board_read")
        rows = [
            f"G{seq} [{worker}, {kind}, 0.1 min ago] {content}"
            for seq, (worker, kind, content) in enumerate(self.entries, 1)
            if seq > after and (not type or kind == type) and seq not in self.gone
        ]
        return self._end("\n".join([f"status=ok entries={len(rows)}", *rows]))

    async def grep(self, query: str, before: int = 0) -> str:
        await self._begin("board_grep")
        return self._end("status=ok entries=0\nNothing.")

    async def release(self, label: str) -> str:
        await self._begin("board_release")
        self.gone.add(int(label[1:]))
        return self._end(f"status=released label={label}")

    async def pending(self) -> str:
        await self._begin("board_pending")
        return self._end("status=ok pending=0\nNothing waits for you.")

    async def post(self, message: str, thread: str = "", key: str = "") -> str:
        await self._begin("chat_post")
        if key not in self.keys:
            self.keys[key] = ""
            self.posts.append(message)
        return self._end("status=posted post=p1")

    async def dm(self, to: str, message: str, key: str = "") -> str:
        await self._begin("chat_dm")
        if key not in self.keys:
            self.keys[key] = ""
            self.messages.append((to, message))
        return self._end("status=sent post=p1")

    async def comment(self, number: int, body: str) -> str:
        await self._begin("forge_comment")
        return self._end("status=ok")

    async def pull_open(self, branch: str, title: str, body: str = "") -> str:
        await self._begin("forge_pull_open")
        if branch not in self.pulls:
            self.pulls.append(branch)
        return self._end(f"status=opened pull={self.pulls.index(branch) + 1}")

    async def pull_merge(self, number: int) -> str:
        await self._begin("forge_pull_merge")
        if self.pulls[number - 1] in self.refused:
            return self._end(f"status=closed pull={number}\nrefused: it is closed.")
        return self._end(await asyncio.to_thread(merge, self.repository, self.pulls[number - 1], number))


def merge(repository: Path, branch: str, number: int) -> str:
    """Merge a branch into main of a bare repository; return what the tool answers."""
    command = ["git", "merge-tree", "--write-tree", "main", branch]
    tree = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if tree.returncode != 0:
        return f"status=conflict pull={number}\nrefused: conflict with main."
    main, head = git(repository, "rev-parse", "main", branch).split()
    made = ["commit-tree", tree.stdout.split()[0], "-p", main, "-p", head, "-m", f"Merge {branch}"]
    sha = git(repository, *made).strip()
    git(repository, "update-ref", "refs/heads/main", sha)
    return f"status=merged sha={sha} pull={number}\nmerged as {sha}"


_TOOLS = {
    "board_write": Endpoint.write,
    "board_read": Endpoint.read,
    "board_grep": Endpoint.grep,
    "board_release": Endpoint.release,
    "board_pending": Endpoint.pending,
    "chat_post": Endpoint.post,
    "chat_dm": Endpoint.dm,
    "forge_comment": Endpoint.comment,
    "forge_pull_open": Endpoint.pull_open,
    "forge_pull_merge": Endpoint.pull_merge,
}


class _Bearer:
    """Refuses whatever does not carry the worker's token."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != f"Bearer {TOKEN}":
            refusal: Response = PlainTextResponse("no", 401)
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    """Serve the endpoint on a free port of the loopback interface."""
    server = MCPServer("agensh")
    for name, method in _TOOLS.items():
        server.add_tool(method.__get__(endpoint), name=name)
    app: Starlette = server.streamable_http_app()
    app.user_middleware.append(Middleware(_Bearer))
    bound = open_socket("127.0.0.1", 0, "endpoint")
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    task = asyncio.create_task(running.serve(sockets=[bound]))
    endpoint.url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
    try:
        yield endpoint
    finally:
        for event in endpoint.held.values():
            event.set()
        running.should_exit = True
        await task
        bound.close()


def launch_of(folder: Path, task: Task, url: str) -> WorkerLaunch:
    """Return what the adapter needs for one worker that lives in `folder`."""
    home, work, tmp = folder / "home", folder / "work", folder / "tmp"
    for path in (home, work, tmp):
        path.mkdir(parents=True, exist_ok=True)
    return WorkerLaunch(
        worker=WORKER,
        home=home,
        work=work,
        tmp=tmp,
        log=folder / "cli.log",
        mcp_url=url,
        mcp_token=TOKEN,
        options={"playbook": str(task.playbook)},
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"},
    )


def session_of(folder: Path, session: str) -> dict[str, object]:
    """Read the session file of the worker that lives in `folder`."""
    found: dict[str, object] = json.loads((folder / "home" / ".scripted" / f"{session}.json").read_text())
    return found
