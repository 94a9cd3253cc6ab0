"""The embedded forge and chat, killed with SIGKILL at every step: a statement that writes, a program started, a rename.

`python -m tests.support.embedded_victims NAME FOLDER STEP` prints one JSON line a kill: where it was, how both forks
ended, what their client was told (`log`) and what the forge or the chat has in the end (`found`). Every scenario runs
in a fork over a copy of one folder; a second fork opens what the killed one left, asks for what it was not told of, and
is not killed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from agensh.embedded.chat.app import create_app as create_chat
from agensh.embedded.forge.app import create_app as create_forge
from tests.support.victim import Log, forked

ADMIN = ("admin", "correct-horse-1")
MOST_STEPS = 400
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "COMMIT")
AT = f"/api/v1/repos/{ADMIN[0]}/project"
CHAT = "/api/v4"
TEXTS = ["one", "two", "three"]


class Steps:
    """Counts the steps of this process from `armed` on and kills it before the n-th; 0 never does."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._count = 0
        self.armed = False
        connect = sqlite3.connect

        def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._traced)
            return connection

        vars(sqlite3)["connect"] = traced
        sys.addaudithook(self._heard)

    def _heard(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in {"subprocess.Popen", "os.rename"}:
            self._step()

    def _traced(self, statement: str) -> None:
        if statement.lstrip().upper().startswith(WRITES):
            self._step()

    def _step(self) -> None:
        if self.armed:
            self._count += 1
            if self._count == self._number:
                os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def opened(app: FastAPI, **headers: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Start the application and yield a client of it, without a socket."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://victim", timeout=60, **headers) as client:
            yield client


def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


async def until_mergeable(client: httpx.AsyncClient) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            pull: dict[str, Any] = ok(await client.get(f"{AT}/pulls/1"))
            if pull["mergeable"] or pull["merged"]:
                return pull
            await asyncio.sleep(0.01)


def change(branch: str, path: str, text: str) -> dict[str, Any]:
    content = base64.b64encode(text.encode()).decode()
    files = [{"operation": "create", "path": path, "content": content}]
    return {"branch": "main", "new_branch": branch, "message": f"Add {path}", "files": files}


async def new_forge(folder: Path) -> None:
    """A repository with a branch and its pull request."""
    async with opened(create_forge(folder, admin=ADMIN), auth=ADMIN) as client:
        ok(await client.post("/api/v1/user/repos", json={"name": "project", "auto_init": True}))
        ok(await client.post(f"{AT}/contents", json=change("work", "work.txt", "1\n")))
        ok(await client.post(f"{AT}/pulls", json={"title": "Work", "head": "work", "base": "main"}))
        await until_mergeable(client)


async def forge(folder: Path, log: Log, steps: Steps) -> None:
    """Comment, commit onto a new branch, merge and delete the merged branch; look first, as the tools do."""
    async with opened(create_forge(folder, admin=ADMIN), auth=ADMIN) as client:
        steps.armed = True
        comments = f"{AT}/issues/1/comments"
        if "looks good" not in [each["body"] for each in ok(await client.get(comments))]:
            ok(await client.post(comments, json={"body": "looks good"}))
        log.write("commented")
        if (await client.get(f"{AT}/branches/more")).status_code == 404:
            ok(await client.post(f"{AT}/contents", json=change("more", "more.txt", "1\n")))
        log.write("committed")
        if not (await until_mergeable(client))["merged"]:
            ok(await client.post(f"{AT}/pulls/1/merge", json={"Do": "merge", "delete_branch_after_merge": True}))
        log.write("merged")
        steps.armed = False


async def forge_has(folder: Path) -> dict[str, Any]:
    async with opened(create_forge(folder, admin=ADMIN), auth=ADMIN) as client:
        pull = ok(await client.get(f"{AT}/pulls/1"))
        timeline = ok(await client.get(f"{AT}/issues/1/timeline"))
        return {
            "merged": (pull["merged"], pull["state"]),
            "main": [file["path"] for file in ok(await client.get(f"{AT}/contents"))],
            "tip": ok(await client.get(f"{AT}/branches/main"))["commit"]["id"] == pull["merge_commit_sha"],
            "more": [file["path"] for file in ok(await client.get(f"{AT}/contents?ref=more"))],
            "timeline": [each["type"] for each in timeline],
            "comments": [each["body"] for each in ok(await client.get(f"{AT}/issues/1/comments"))],
        }


async def log_in(client: httpx.AsyncClient) -> dict[str, Any]:
    """Let the client be the admin; return who that is."""
    answer = await client.post(f"{CHAT}/users/login", json={"login_id": ADMIN[0], "password": ADMIN[1]})
    client.cookies.clear()
    client.headers["Authorization"] = f"Bearer {answer.headers['Token']}"
    me: dict[str, Any] = ok(answer)
    return me


async def new_chat(folder: Path) -> None:
    """A team with a channel."""
    async with opened(create_chat(folder, admin=ADMIN)) as client:
        await log_in(client)
        team = ok(await client.post(f"{CHAT}/teams", json={"name": "demo", "display_name": "Demo", "type": "O"}))
        fields = {"team_id": team["id"], "name": "task", "display_name": "Task", "type": "O"}
        ok(await client.post(f"{CHAT}/channels", json=fields))


async def channel_of(client: httpx.AsyncClient) -> dict[str, Any]:
    team = ok(await client.get(f"{CHAT}/teams/name/demo"))
    channel: dict[str, Any] = ok(await client.get(f"{CHAT}/teams/{team['id']}/channels/name/task"))
    return channel


async def posts_of(client: httpx.AsyncClient, channel: str) -> list[dict[str, Any]]:
    found = ok(await client.get(f"{CHAT}/channels/{channel}/posts"))
    return [found["posts"][each] for each in reversed(found["order"]) if not found["posts"][each]["type"]]


async def chat(folder: Path, log: Log, steps: Steps) -> None:
    """Post, and answer in a thread; read back first, as the client does."""
    async with opened(create_chat(folder, admin=ADMIN)) as client:
        await log_in(client)
        channel = (await channel_of(client))["id"]
        written = {post["message"]: post["id"] for post in await posts_of(client, channel)}
        steps.armed = True
        for number, text in enumerate(TEXTS):
            if text not in written:
                body = {"channel_id": channel, "message": text, "root_id": written[TEXTS[0]] if number else ""}
                written[text] = ok(await client.post(f"{CHAT}/posts", json=body))["id"]
            log.write("posted", f"{text}={written[text]}")
        steps.armed = False


async def chat_has(folder: Path) -> dict[str, Any]:
    async with opened(create_chat(folder, admin=ADMIN)) as client:
        await log_in(client)
        channel = await channel_of(client)
        found = await posts_of(client, channel["id"])
        return {
            "posts": [[post["message"], post["id"]] for post in found],
            "replies": [post["reply_count"] for post in found if not post["root_id"]],
            "count": channel["total_msg_count"],
        }


Scenario = Callable[[Path, Log, Steps], Awaitable[None]]
VICTIMS: dict[str, tuple[Callable[[Path], Awaitable[None]], Scenario, Callable[[Path], Awaitable[dict[str, Any]]]]] = {
    "forge": (new_forge, forge, forge_has),
    "chat": (new_chat, chat, chat_has),
}


def run(make: Callable[[], Any]) -> None:
    asyncio.run(make())


def scenario(work: Scenario, folder: Path, log: Path, number: int) -> None:
    steps = Steps(number)
    run(lambda: work(folder, Log(log), steps))


def report(look: Callable[[Path], Awaitable[dict[str, Any]]], folder: Path, pipe: int) -> None:
    async def tell() -> None:
        os.write(pipe, json.dumps(await look(folder)).encode())

    run(tell)


def main(name: str, folder: Path, every: int) -> None:
    """Kill at each step, or at each `every`-th."""
    make, work, look = VICTIMS[name]
    template = folder / "template"
    assert forked(lambda: run(lambda: make(template))) == 0
    for number in range(1, MOST_STEPS, every):
        data, log = folder / str(number), folder / f"{number}.log"
        shutil.copytree(template, data)
        first = forked(partial(scenario, work, data, log, number))
        second = forked(partial(scenario, work, data, log, 0))
        reader, writer = os.pipe()
        forked(partial(report, look, data, writer))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found = json.loads(pipe.read() or "null")
        told = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        line = {"at": number, "first": first, "second": second, "log": told, "found": found}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()  # or the next fork carries it away in its copy of the buffer
        if first == 0:
            return
        shutil.rmtree(data)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
