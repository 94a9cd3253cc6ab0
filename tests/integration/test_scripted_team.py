"""Three rule-based workers on the real parts: embedded forge, chat and board, node host, MCP endpoint, real CLIs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.registry import adapter_class
from adapters.runtime import LocalRuntime
from adapters.scripted.playbook import load
from adapters.scripted.shell import LocalShell
from adapters.scripted.work import LocalBench
from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from agensh.launch.ports import free_port
from agensh.provision import provision
from agensh.rundir import RunDir
from agensh.spec import parse_spec
from router.backends import ServiceBackends
from router.node import NodeHost
from tests.support.scripted_team import Task, git, make_task
from tests.support.services import Services, running_services

TOOLS = ("basename", "tac")
LIMIT = 120.0  # seconds; about ten on a machine with nothing else to do
pytestmark = pytest.mark.timeout(4 * LIMIT)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, *TOOLS)


async def provisioned(services: Services, task: Task, folder: Path, team: str) -> RunDir:
    """Return a run of three scripted workers on the task, ready to start."""
    run = services.new_run(folder, team)
    info = run.info()
    spec = parse_spec(
        {
            "team": {"name": team, "workers": 3},
            "task": {
                "kind": "rebuild",
                "goal": task.folder / "goal.md",
                "reference": task.reference,
                "repository": task.folder / "start",
            },
            "worker": {"harness": "scripted", "options": {"playbook": str(task.playbook)}},
            "clock": {"budget": "1h", "stagger": "50ms", "idle": "1s", "wind_down": "2m", "last_call": "1m"},
        }
    )
    urls = info.urls.model_copy(update={"node": f"http://127.0.0.1:{free_port()}"})
    run.write_info(info.model_copy(update={"spec": spec, "urls": urls}))
    run.write_secrets(await provision(run, run.info(), run.secrets(), progress=lambda _: None))
    return run


@asynccontextmanager
async def hosted(run: RunDir) -> AsyncIterator[NodeHost]:
    """Run the node host in this process while the block lasts."""
    info, secrets, clock = run.info(), run.secrets(), SystemClock()
    host = NodeHost(
        run,
        info,
        secrets,
        adapter_factory=adapter_class,
        runtime=LocalRuntime(),
        clock=clock,
        workers=info.spec.worker_names,
        backends=ServiceBackends(info, secrets, clock),
        grace=2.0,
    )
    task = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        host.stop()
        await task


async def entries_of(run: RunDir) -> list[Entry]:
    info, secrets = run.info(), run.secrets()
    async with BoardClient(info.urls.board, secrets.board_admin, info.board) as board:
        return await board.read()


async def wait_for_entries(run: RunDir, type_: EntryType, *parts: str) -> list[Entry]:
    """Wait until there is an entry of that type for each part of a content."""
    async with asyncio.timeout(LIMIT):
        while True:
            entries = await entries_of(run)
            texts = [entry.content for entry in entries if entry.type is type_]
            if all(any(part in text for text in texts) for part in parts):
                return entries
            await asyncio.sleep(0.1)


async def wait_for_audits(run: RunDir) -> list[Entry]:
    """Wait until wide probes of every tool agree: at once, or after the fix that an audit landed."""
    async with asyncio.timeout(LIMIT):
        while True:
            entries = await entries_of(run)
            seen = [entry.content for entry in entries if "42 of 42 probes agree" in entry.content]
            if all(any(f"audit {tool}:" in text or f"/{tool}.py," in text for text in seen) for tool in TOOLS):
                return entries
            await asyncio.sleep(0.1)


async def main_of(run: RunDir, folder: Path) -> Path:
    """Clone the team's main."""
    info, admin = run.info(), run.secrets().forge_admin
    url = f"{info.urls.forge}/{info.owner}/{info.repository}.git".replace("//", f"//{admin.name}:{admin.password}@")
    await asyncio.to_thread(git, folder, "clone", "--quiet", url, "main")
    return folder / "main"


async def test_a_team_rebuilds_a_program_and_nothing_is_stranded(
    services: Services, task: Task, tmp_path: Path
) -> None:
    run = await provisioned(services, task, tmp_path / "run", "alpha")
    info, secrets = run.info(), run.secrets()
    async with hosted(run):
        await wait_for_entries(run, EntryType.PATCH_SUMMARY, *(f"src/tools/{tool}.py" for tool in TOOLS))
        entries = await wait_for_audits(run)
    assert not _clis(run)

    assert {entry.worker for entry in entries} == set(info.spec.worker_names)
    async with GiteaClient(info.urls.forge, token=secrets.forge_admin.token) as forge:
        pulls = await forge.pulls(info.owner, info.repository, state="all")
    merged = [pull for pull in pulls if pull.merged]
    assert len(merged) >= len(TOOLS) + 1
    assert {pull.author for pull in merged} <= set(info.spec.worker_names)
    summaries = [entry for entry in entries if entry.type is EntryType.PATCH_SUMMARY]
    assert len(summaries) == len({entry.content for entry in summaries}) == len(merged)
    assert sum("check.py" in entry.content.partition(" | ")[0] for entry in summaries) == 1, (
        "one of them built the core"
    )

    main = await main_of(run, tmp_path)
    await asyncio.to_thread(subprocess.run, ["sh", "compile.sh"], cwd=main, check=True)
    bench = LocalBench(task.reference, tmp_path / "bench", LocalShell(lambda _: None))
    playbook = load(task.playbook)
    for tool in TOOLS:
        result = await bench.compare(main / "executable", playbook.probes(tool, "wide", "judge"), tool)
        assert result.agrees, f"{tool}: {result}"
    assert await asyncio.to_thread(subprocess.run, ["python3", "check.py"], cwd=main)
    for worker, mine in secrets.workers.items():
        async with MattermostClient(info.urls.chat, token=mine.chat_token) as chat:
            assert (await chat.me()).username == worker


async def test_killed_workers_go_on_where_they_were(services: Services, task: Task, tmp_path: Path) -> None:
    run = await provisioned(services, task, tmp_path / "run", "beta")
    async with hosted(run):
        await wait_for_entries(run, EntryType.PATCH_SUMMARY, "src/dispatch.py")
        killed = _clis(run)
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await wait_for_entries(run, EntryType.PATCH_SUMMARY, "src/tools/")
    # A host that was stopped in the middle is followed by another one.
    async with hosted(run):
        entries = await wait_for_entries(run, EntryType.PATCH_SUMMARY, *(f"src/tools/{tool}.py" for tool in TOOLS))
    for type_ in (EntryType.PATCH_SUMMARY, EntryType.FAIL):
        said = Counter((entry.worker, entry.content) for entry in entries if entry.type is type_)
        assert max(said.values(), default=1) == 1, f"written twice: {said.most_common(1)}"
    info, mine = run.info(), run.secrets().workers["beta-worker1"]
    async with MattermostClient(info.urls.chat, token=mine.chat_token) as chat:
        team = await chat.team_by_name(info.chat_team)
        channel = await chat.channel_by_name(team.id, info.channel)
        posts = [post for post in await chat.posts(channel.id, limit=200) if not post.type]
    introductions = Counter(post.user_id for post in posts if "I take free areas" in post.message)
    assert set(introductions.values()) == {1}
    main = await main_of(run, tmp_path)
    for tool in TOOLS:
        assert (main / "src" / "tools" / f"{tool}.py").exists()


def _clis(run: RunDir) -> list[int]:
    """Return the process ids of the run's scripted CLIs."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            inside = (entry / "cwd").resolve().is_relative_to(run.path)
        except OSError:
            continue
        if b"adapters.scripted" in command and inside:
            found.append(int(entry.name))
    return found
