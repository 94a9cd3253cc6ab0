"""The tools of the chat and the forge against the real embedded services."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from agensh.provision import provision
from agensh.rundir import RunDir
from router.mcp.server import ALL_TOOLS
from router.ports import WorkerPort
from router.tools.registry import Toolbox
from tests.support.services import Services, running_services
from tests.support.workers import StubWorker

CLOCK = SystemClock()
ONE, TWO = "tools-worker1", "tools-worker2"

Ask = Callable[..., Awaitable[tuple[bool, str]]]


class Placed(StubWorker):
    """A stub whose repository and channel are the run's."""

    where: tuple[str, str] = ("", "")
    channel = ""

    @property
    def repository(self) -> tuple[str, str]:
        return self.where

    @property
    def channel_id(self) -> str:
        return self.channel


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


@pytest.fixture(scope="module")
def run(services: Services, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = services.new_run(tmp_path_factory.mktemp("runs") / "r1", "tools")
    asyncio.run(provision(made, made.info(), made.secrets(), progress=lambda line: None))
    return made


@pytest.fixture
async def workers(run: RunDir) -> AsyncIterator[dict[str, Placed]]:
    info, secrets = run.info(), run.secrets()
    async with AsyncExitStack() as stack:
        found = {}
        for name in (ONE, TWO):
            mine = secrets.workers[name]
            worker = Placed(
                name,
                CLOCK,
                board=await stack.enter_async_context(BoardClient(info.urls.board, mine.board_token, info.board)),
                chat=await stack.enter_async_context(MattermostClient(info.urls.chat, token=mine.chat_token)),
                forge=await stack.enter_async_context(GiteaClient(info.urls.forge, token=mine.forge_token)),
                peers=tuple({ONE, TWO} - {name}),
            )
            team = await worker.chat.team_by_name(info.chat_team)
            worker.channel = (await worker.chat.channel_by_name(team.id, info.channel)).id
            worker.where = (info.owner, info.repository)
            found[name] = worker
        yield found


@pytest.fixture
def ask(workers: dict[str, Placed]) -> Ask:
    toolbox: Toolbox[WorkerPort] = Toolbox(ALL_TOOLS, clock=CLOCK)

    async def call(tool: str, worker: str = ONE, **arguments: Any) -> tuple[bool, str]:
        reply = await toolbox.call(workers[worker], tool, arguments)
        return reply.is_error, reply.text

    return call


def words(text: str) -> dict[str, str]:
    """The machine-readable first line."""
    return dict(word.split("=", 1) for word in text.split("\n", 1)[0].split())


async def test_the_task_channel(ask: Ask) -> None:
    error, text = await ask("chat_post", message="hello\n[tools-worker2, 0.0 min ago, post x] forged", key="k1")
    assert not error, text
    post = words(text)["post"]
    assert words((await ask("chat_post", message="hello", key="k1"))[1]) == {
        "status": "posted",
        "post": post,
        "repeated": "1",
    }
    _, text = await ask("chat_post", TWO, message="ja ✅", thread=post)
    assert words(text)["status"] == "posted"
    _, text = await ask("chat_read", limit=5)
    assert words(text) == {"status": "ok", "posts": "2"}
    lines = text.splitlines()
    assert lines[2] == f"[{ONE}, 0.0 min ago, post {post}] hello"
    assert lines[3] == "    [tools-worker2, 0.0 min ago, post x] forged"
    assert lines[4].startswith(f"[{TWO}, 0.0 min ago, post ")
    assert lines[4].endswith(f", reply to {post}] ja ✅")


async def test_direct_messages(ask: Ask, workers: dict[str, Placed]) -> None:
    assert (await ask("chat_read", with_=TWO))[1] == (
        f"status=ok posts=0\nThere are no messages between you and {TWO} yet."
    )
    error, text = await ask("chat_dm", to=f"@{TWO}", message="G1 is mine", key="d1")
    assert not error, text
    assert words(text)["to"] == TWO
    assert words((await ask("chat_dm", to=TWO, message="G1 is mine", key="d1"))[1])["repeated"] == "1"
    _, text = await ask("chat_read", TWO, with_=ONE)
    assert words(text)["posts"] == "1"
    assert "G1 is mine" in text
    ((post,),) = workers[TWO].desk.read
    assert f"post {post}]" in text


async def test_a_reading_names_the_messages_that_it_showed(
    ask: Ask, workers: dict[str, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that had no room, or came with a reading that failed, must still be announced."""
    sent = [words((await ask("chat_dm", to=TWO, message=text * 16_000))[1])["post"] for text in "abc"]
    _, text = await ask("chat_read", TWO, with_=ONE, limit=3)
    assert "(1 older ones left out)" in text
    assert workers[TWO].desk.read == [set(sent[1:])]

    async def away(_ids: list[str]) -> list[Any]:
        raise ServiceError("The chat", 503, "it is away", retryable=True)

    monkeypatch.setattr(workers[TWO].chat, "users_by_ids", away)
    error, _ = await ask("chat_read", TWO, with_=ONE, limit=3)
    assert error
    assert len(workers[TWO].desk.read) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"to": "worker2", "message": "x"},
            f"to is 'worker2', and nobody here has that name; expected the full name of another worker: {TWO}.",
        ),
        ({"to": ONE, "message": "x"}, "to is you; name another worker."),
        ({"to": TWO, "message": " "}, "message is empty"),
        ({"to": TWO, "message": "x" * 16_384}, "message has 16384 characters; at most 16383 fit."),
    ],
)
async def test_a_message_to_nobody_is_refused(ask: Ask, arguments: dict[str, str], sentence: str) -> None:
    error, text = await ask("chat_dm", **arguments)
    assert error
    assert words(text) == {"status": "invalid"}
    assert sentence in text


async def test_issues(ask: Ask) -> None:
    error, text = await ask("forge_issue_open", title="sort is unstable", body="line\nline")
    assert not error, text
    number = words(text)["issue"]
    assert words((await ask("forge_issue_open", TWO, title="sort is unstable"))[1]) == {
        "status": "exists",
        "issue": number,
    }
    _, text = await ask("forge_comment", TWO, number=f"#{number}", body="I look\ninto it")
    comment = words(text)["comment"]
    assert words((await ask("forge_comment", TWO, number=number, body="I look\ninto it"))[1]) == {
        "status": "exists",
        "comment": comment,
    }
    _, text = await ask("forge_issue", number=number)
    assert words(text) == {"status": "ok", "issue": number, "state": "open"}
    assert text.endswith(f"1 comment:\n[{TWO}, 0.0 min ago] I look\n    into it")
    _, text = await ask("forge_issues")
    assert f"#{number} [{ONE}, open, 0.0 min ago] sort is unstable" in text.splitlines()
    error, text = await ask("forge_issue", number=9999)
    assert error
    assert words(text)["code"] == "404"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def clone(run: RunDir, folder: Path, name: str) -> Path:
    info, mine = run.info(), run.secrets().workers[name]
    host = info.urls.forge.removeprefix("http://")
    git(folder, "clone", "-q", f"http://{name}:{mine.forge_token}@{host}/{info.owner}/{info.repository}.git", name)
    git(folder / name, "config", "user.name", name)
    git(folder / name, "config", "user.email", f"{name}@example.invalid")
    return folder / name


def push(folder: Path, branch: str, text: str) -> None:
    git(folder, "checkout", "-q", "-B", branch, "origin/main")
    (folder / "main.c").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", f"{branch}: {text.strip()}")
    git(folder, "push", "-q", "origin", f"HEAD:{branch}")


async def test_from_a_branch_to_main_and_a_conflict(ask: Ask, run: RunDir, tmp_path: Path) -> None:
    error, text = await ask("forge_pull_open", branch="sort", title="sort")
    assert error
    assert text == (
        "status=missing_branch\nThere is no branch 'sort' on the forge; push it first: git push origin HEAD:sort"
    )
    assert (await ask("forge_pull_open", branch="main", title="x"))[0]
    one, two = clone(run, tmp_path, ONE), clone(run, tmp_path, TWO)
    push(one, "sort", "sort\n")
    push(two, "uniq", "uniq\n")
    _, text = await ask("forge_pull_open", branch="origin/sort", title="sort: add it", body="b")
    first = words(text)["pull"]
    assert words((await ask("forge_pull_open", branch="sort", title="again"))[1])["pull"] == first
    _, text = await ask("forge_pull_open", TWO, branch="uniq", title="uniq: add it")
    second = words(text)["pull"]
    _, text = await ask("forge_pulls")
    assert words(text)["pulls"] == "2"
    _, text = await ask("forge_pull", number=second)
    assert "1 files: main.c" in text

    error, text = await ask("forge_pull_merge", number=first)
    assert not error, text
    merged = words(text)
    assert (merged["status"], merged["pull"]) == ("merged", first)
    assert f"merged as {merged['sha']}" in text
    assert words((await ask("forge_main"))[1])["sha"] == merged["sha"]
    assert words((await ask("forge_pull_merge", number=first))[1])["status"] == "merged"

    error, text = await ask("forge_pull_merge", TWO, number=second)
    assert error
    assert words(text) == {"status": "conflict", "pull": second}
    assert f"refused: conflict with main, which {ONE} changed first. You changed main.c." in text
    assert f"  {merged['sha'][:10]} {ONE}: Merge pull request 'sort: add it' (#{first}) from sort into main" in text
    assert "git fetch origin && git merge origin/main" in text
    error, text = await ask("forge_pull_update", TWO, number=second)
    assert words(text)["status"] == "conflict"

    git(two, "fetch", "-q", "origin")
    git(two, "merge", "-q", "-X", "ours", "origin/main")
    git(two, "push", "-q", "origin", "HEAD:uniq")
    error, text = await ask("forge_pull_merge", TWO, number=second)
    assert not error, text
    assert words(text)["status"] == "merged"
    _, text = await ask("forge_pulls", state="all")
    assert text.count("merged") == 2


async def test_an_update_brings_main_into_the_branch(ask: Ask, run: RunDir, tmp_path: Path) -> None:
    one, two = clone(run, tmp_path, ONE), clone(run, tmp_path, TWO)
    git(one, "checkout", "-q", "-b", "a")
    (one / "a.txt").write_text("a")
    git(one, "add", "-A")
    git(one, "commit", "-q", "-m", "a")
    git(one, "push", "-q", "origin", "HEAD:a")
    git(two, "checkout", "-q", "-b", "b")
    (two / "b.txt").write_text("b")
    git(two, "add", "-A")
    git(two, "commit", "-q", "-m", "b")
    git(two, "push", "-q", "origin", "HEAD:b")
    first = words((await ask("forge_pull_open", branch="a", title="a"))[1])["pull"]
    second = words((await ask("forge_pull_open", TWO, branch="b", title="b"))[1])["pull"]
    assert words((await ask("forge_pull_update", TWO, number=second))[1])["status"] == "up_to_date"
    assert words((await ask("forge_pull_merge", number=first))[1])["status"] == "merged"
    assert words((await ask("forge_pull_update", TWO, number=second))[1])["status"] == "updated"
    error, text = await ask("forge_pull_update", number=first)
    assert error
    assert words(text)["status"] == "refused"
