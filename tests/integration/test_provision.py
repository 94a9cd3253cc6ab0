"""Provisioning against the real embedded services: whole, repeated, and killed at every request."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.http import new_http_client
from agensh.clients.mattermost import MattermostClient
from agensh.entries import EntryType
from agensh.errors import AgenshError, ServiceError
from agensh.provision import provision
from agensh.rundir import RunDir, RunSecrets
from tests.support.chat_server import running_chat
from tests.support.services import Services, running_services


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


async def run_provision(run: RunDir, http: httpx.AsyncClient | None = None) -> tuple[RunSecrets, list[str]]:
    lines: list[str] = []
    secrets = await provision(run, run.info(), run.secrets(), progress=lines.append, http=http)
    return secrets, lines


async def check(run: RunDir) -> None:
    """Everything a run needs is there, once."""
    info, secrets = run.info(), run.secrets()
    names = info.spec.worker_names
    assert list(secrets.workers) == sorted(names)
    admin = secrets.forge_admin
    async with (
        GiteaClient(info.urls.forge, token=admin.token) as forge,
        MattermostClient(info.urls.chat, token=secrets.chat_admin.token) as chat,
    ):
        assert await forge.collaborators(info.owner, info.repository) == set(names)
        issues = await forge.issues(info.owner, info.repository, state="all", kind=None)
        assert [(issue.number, issue.title) for issue in issues] == [(1, "Rebuild the thing")]
        assert "exactly" in issues[0].body
        assert len(await forge.commits(info.owner, info.repository, sha="main")) == 1
        assert await forge.branch_protected(info.owner, info.repository, "main")
        assert await forge.watchers(info.owner, info.repository) == set()
        team = await chat.team_by_name(info.chat_team)
        channel = await chat.channel_by_name(team.id, info.channel)
        members = [user.username for user in await chat.members(channel.id)]
        assert sorted(members) == sorted([*names, secrets.chat_admin.name])
    for name in names:
        worker = secrets.workers[name]
        async with GiteaClient(info.urls.forge, token=worker.forge_token) as mine:
            assert (await mine.me()).login == name
            assert (await mine.issue(info.owner, info.repository, 1)).number == 1
            assert await mine.notifications() == []
        async with GiteaClient(info.urls.forge, basic=(admin.name, admin.password)) as basic:
            tokens = await basic.get(f"/users/{name}/tokens")
            assert [token["name"] for token in tokens] == [f"agensh-{info.run_id}"]
        async with MattermostClient(info.urls.chat, token=worker.chat_token) as chat:
            me = await chat.me()
            assert (me.username, me.id, me.is_bot) == (name, worker.chat_user_id, True)
            assert info.channel in {channel.name for channel in await chat.my_channels()}
        async with MattermostClient(info.urls.chat, token=secrets.chat_admin.token) as chat:
            assert len(await chat.user_tokens(worker.chat_user_id)) == 1
        async with BoardClient(info.urls.board, worker.board_token, info.board) as board:
            await board.write(EntryType.FACT, f"{name} is here")
            assert (await board.read())[-1].worker == name
        assert worker.mcp_token


async def test_a_run_is_provisioned_and_a_second_time_changes_nothing(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "twice", "twice")
    first, lines = await run_provision(run)
    assert any("repository twice/work" in line for line in lines)
    assert run.secrets() == first
    assert run.secrets_file.stat().st_mode & 0o777 == 0o600
    second, _ = await run_provision(run)
    assert second == first
    await check(run)
    everything = [worker.forge_token for worker in first.workers.values()] + [first.chat_admin.token]
    assert not any(secret in line for line in lines for secret in everything)


class Killed(BaseException):
    """The process is gone: nothing after the answer of the service is done."""


class MortalRun(RunDir):
    """A run folder as a process sees it that may be killed: from then on it writes nothing any more."""

    __slots__ = ("alive",)

    def write_secrets(self, value: RunSecrets) -> None:
        if getattr(self, "alive", True):
            super().write_secrets(value)

    def die(self) -> None:
        object.__setattr__(self, "alive", False)


async def test_killed_after_any_change_it_goes_on_where_it_was(services: Services, tmp_path: Path) -> None:
    """Every request that changes something is once the last thing that a process did, its answer never seen."""
    run = services.new_run(tmp_path / "killed", "killed")
    killed_at: set[tuple[str, str]] = set()

    async def kill_once(response: httpx.Response) -> None:
        what = (response.request.method, response.request.url.path)
        if what[0] != "GET" and what not in killed_at:
            killed_at.add(what)
            process.die()
            raise Killed

    for _ in range(200):
        killed = False
        process = MortalRun(run.path)
        async with new_http_client() as http:
            http.event_hooks["response"].append(kill_once)
            try:
                await run_provision(process, http)
            except* Killed:
                killed = True
        if not killed:
            break
    else:
        pytest.fail("it never came to its end")
    assert {method for method, _ in killed_at} >= {"POST", "PUT", "DELETE"}
    assert len(killed_at) >= 20
    await check(run)


async def test_a_token_that_the_service_no_longer_knows_is_replaced(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "lost", "lost")
    before, _ = await run_provision(run)
    info, name = run.info(), "lost-worker1"
    old = before.workers[name].model_copy()
    admin = before.forge_admin
    async with GiteaClient(info.urls.forge, basic=(admin.name, admin.password)) as forge:
        await forge.delete_token(name, f"agensh-{info.run_id}")
    async with MattermostClient(info.urls.chat, token=before.chat_admin.token) as chat:
        for token in await chat.user_tokens(old.chat_user_id):
            await chat.revoke_token(token.id)
    async with BoardClient(info.urls.board, before.board_admin, info.board) as board:
        await board.revoke_token(name)
    after = (await run_provision(run))[0].workers
    assert {old.forge_token, old.chat_token, old.board_token}.isdisjoint(
        {after[name].forge_token, after[name].chat_token, after[name].board_token}
    )
    assert after["lost-worker2"] == before.workers["lost-worker2"]
    await check(run)


async def test_main_takes_no_push_and_a_worker_can_merge(services: Services, tmp_path: Path) -> None:
    source = tmp_path / "start"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (source / "bin" / "run.sh").chmod(0o755)
    (source / "naïve name.txt").write_text("x\n")
    run = services.new_run(tmp_path / "pushing", "pushing", repository=source)
    secrets, _ = await run_provision(run)
    info, name = run.info(), "pushing-worker1"
    token = secrets.workers[name].forge_token
    clone = tmp_path / "clone"
    url = info.urls.forge.replace("://", f"://{name}:{token}@") + f"/{info.owner}/{info.repository}.git"

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        identity = ["-c", "user.name=w", "-c", "user.email=w@localhost"]
        return subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert git("clone", "--quiet", url, str(clone)).returncode == 0
    assert (clone / "bin" / "run.sh").stat().st_mode & 0o100
    assert (clone / "naïve name.txt").read_text() == "x\n"
    (clone / "new.txt").write_text("new\n")
    git("-C", str(clone), "add", "--all")
    assert git("-C", str(clone), "commit", "--quiet", "--message", "new").returncode == 0
    refused = git("-C", str(clone), "push", "--quiet", "origin", "HEAD:main")
    assert refused.returncode != 0
    assert git("-C", str(clone), "push", "--quiet", "origin", "HEAD:refs/heads/w1/new").returncode == 0
    async with GiteaClient(info.urls.forge, token=token) as forge:
        opened = await forge.create_pull(info.owner, info.repository, head="w1/new", base="main", title="New")
        again = await forge.create_pull(info.owner, info.repository, head="w1/new", base="main", title="New")
        assert again.number == opened.number
        merged = await forge.merge_when_ready(
            info.owner, info.repository, opened.number, head_sha=opened.head_sha, patience=20
        )
        assert merged.status == "merged", merged
        assert (await forge.branch(info.owner, info.repository, "main")).sha == merged.sha
        assert await forge.pull_files(info.owner, info.repository, opened.number) == ["new.txt"]


def new_source(folder: Path) -> Path:
    """A Git repository with two commits on a branch that is not called main."""
    folder.mkdir()
    for command in (
        ["init", "--quiet", "--initial-branch=trunk"],
        ["commit", "--quiet", "--allow-empty", "--message", "one"],
        ["commit", "--quiet", "--allow-empty", "--message", "two"],
    ):
        subprocess.run(["git", "-c", "user.name=w", "-c", "user.email=w@x", *command], cwd=folder, check=True)
    return folder


async def test_the_history_of_a_git_repository_is_kept(services: Services, tmp_path: Path) -> None:
    source = new_source(tmp_path / "source")
    run = services.new_run(tmp_path / "history", "history", repository=source)
    secrets, _ = await run_provision(run)
    info = run.info()
    async with GiteaClient(info.urls.forge, token=secrets.forge_admin.token) as forge:
        commits = await forge.commits(info.owner, info.repository, sha="main")
    assert [commit.message.strip() for commit in commits] == ["two", "one"]


async def test_a_repository_of_another_run_is_not_touched(services: Services, tmp_path: Path) -> None:
    await run_provision(services.new_run(tmp_path / "mine", "taken"))
    with pytest.raises(AgenshError, match=r"repository: taken/work exists on the forge and is not of this run"):
        await run_provision(services.new_run(tmp_path / "other", "taken"))


async def test_a_wrong_password_is_a_sentence(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "wrong", "wrong")
    secrets = run.secrets()
    secrets.forge_admin.password = "not-it-at-all"
    run.write_secrets(secrets)
    with pytest.raises(AgenshError, match="does not accept the password of its administrator 'root-admin'"):
        await run_provision(run)


async def test_a_service_that_is_down_is_named(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "down", "down")
    info = run.info()
    run.write_info(info.model_copy(update={"urls": info.urls.model_copy(update={"forge": "http://127.0.0.1:9"})}))
    with pytest.raises(ServiceError, match="The forge did not answer"):
        async with asyncio.timeout(30):
            await run_provision(run)


async def test_a_chat_without_bot_accounts_is_named(services: Services, tmp_path: Path) -> None:
    with running_chat(tmp_path / "stock", enable_bot_account_creation=False) as chat:
        run = services.new_run(tmp_path / "bots", "bots")
        info = run.info()
        run.write_info(info.model_copy(update={"urls": info.urls.model_copy(update={"chat": chat.url})}))
        with pytest.raises(AgenshError, match=r"chat: the server does not let 'admin' create bots: .*disabled"):
            await run_provision(run)


async def test_a_team_that_is_too_small_is_named_and_can_be_finished_later(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "small", "small", workers=3)
    info = run.info()
    with running_chat(tmp_path / "small-chat", max_users_per_team=3) as chat:
        run.write_info(info.model_copy(update={"urls": info.urls.model_copy(update={"chat": chat.url})}))
        with pytest.raises(AgenshError, match=r"this one needs 4; set TeamSettings.MaxUsersPerTeam to at least 4"):
            await run_provision(run)
        chat.stop()
        chat.settings["max_users_per_team"] = 4
        chat.start()
        await run_provision(run)
        await check(run)


async def test_a_chat_that_limits_its_rate_is_waited_for(services: Services, tmp_path: Path) -> None:
    run = services.new_run(tmp_path / "rate", "rate")
    info = run.info()
    with running_chat(tmp_path / "rate-chat", rate_limit=True, rate_limit_per_second=10, rate_limit_burst=5) as chat:
        run.write_info(info.model_copy(update={"urls": info.urls.model_copy(update={"chat": chat.url})}))
        await run_provision(run)
        assert all(worker.chat_token for worker in run.secrets().workers.values())
