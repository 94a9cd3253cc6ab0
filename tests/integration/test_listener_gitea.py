"""The forge's listener against the embedded forge: every comment is one event, whatever is cut or killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from agensh.clients.gitea import GiteaClient
from agensh.clients.gitea_events import ForgeSignal, GiteaEventStream
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from agensh.provision import provision
from agensh.rundir import RunInfo, RunSecrets
from router.events import EventSink
from router.listeners.base import PushSource
from router.listeners.gitea import GiteaListener
from tests.support.queues import Flaky, listening, running_queue, until
from tests.support.services import Services, running_services, set_state
from tests.support.tcp_proxy import tcp_proxy

TEAMS = count(1)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running_services(tmp_path_factory.mktemp("services")) as running:
        yield running


class Office:
    """A provisioned team of three: `me` listens, the others act."""

    def __init__(self, services: Services, info: RunInfo, secrets: RunSecrets, stack: AsyncExitStack) -> None:
        self.services = services
        self.info = info
        self.secrets = secrets
        self.names = info.spec.worker_names
        self.place = (info.owner, info.repository)
        self.clients = {
            name: GiteaClient(info.urls.forge, token=secrets.workers[name].forge_token) for name in self.names
        }
        for client in self.clients.values():
            stack.push_async_callback(client.aclose)
        self._stack = stack

    @property
    def me(self) -> str:
        return self.names[0]

    @property
    def mine(self) -> GiteaClient:
        return self.clients[self.me]

    def other(self, number: int = 1) -> GiteaClient:
        return self.clients[self.names[number]]

    def stream(self, url: str | None = None) -> GiteaEventStream:
        password = self.secrets.workers[self.me].forge_password
        stream = GiteaEventStream(url or self.info.urls.forge, self.me, password)
        self._stack.push_async_callback(stream.aclose)
        return stream

    def listener(
        self, sink: EventSink, *, source: PushSource[ForgeSignal] | None = None, sweep_every: float = 600.0
    ) -> GiteaListener:
        return GiteaListener(
            self.me,
            self.mine,
            source or self.stream(),
            sink,
            SystemClock(),
            sweep_every=sweep_every,
            reconnect_first=0.05,
            reconnect_longest=0.2,
        )


@pytest_asyncio.fixture
async def office(services: Services, tmp_path: Path) -> AsyncIterator[Office]:
    team = f"team{next(TEAMS)}"
    run = services.new_run(tmp_path / "run", team, workers=3)
    secrets = await provision(run, run.info(), run.secrets(), progress=lambda _line: None)
    async with AsyncExitStack() as stack:
        yield Office(services, run.info(), secrets, stack)


def keys(rows: list[object]) -> list[str]:
    return [row.dedupe_key for row in rows]  # type: ignore[attr-defined]


async def test_a_burst_of_comments_is_one_event_each(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser", "who takes tabs?")
    made: list[int] = []

    async def talk(number: int) -> None:
        for index in range(15):
            comment = await office.other(number).create_comment(*office.place, issue.number, f"{number}: {index}")
            made.append(comment.id)

    async def talk_myself() -> None:
        for index in range(5):
            await office.mine.create_comment(*office.place, issue.number, f"mine {index}")

    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)):
        await asyncio.gather(talk(1), talk(2), talk_myself())
        found = await rows.until(30)
        assert sorted(keys(found)) == sorted(f"gitea:comment:{number}" for number in made)
        assert {row.kind for row in found} == {"comment"}
        assert {row.thread for row in found} == {f"gitea:{'/'.join(office.place)}#{issue.number}"}
        first = found[0].summary
        assert first.startswith((office.names[1], office.names[2]))
        assert f'issue #{issue.number} "Parser"' in first


async def test_comments_while_the_stream_is_cut_and_refused_are_not_lost(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    port = office.services.forge.port
    async with tcp_proxy(port) as proxy, running_queue(tmp_path, office.me) as rows:
        stream = office.stream(f"http://127.0.0.1:{proxy.port}")
        async with listening(office.listener(rows.queue, source=stream)) as listener:
            for index in range(10):
                await office.other().create_comment(*office.place, issue.number, f"before {index}")
                if index % 3 == 0:
                    proxy.cut()
            proxy.refuse = True
            proxy.cut()
            await until(lambda: not listener.live.is_set(), "the cut is noticed")
            for index in range(10):
                await office.other().create_comment(*office.place, issue.number, f"away {index}")
            proxy.refuse = False
            assert len(await rows.until(20)) == 20
            await asyncio.wait_for(listener.live.wait(), 30)


async def test_a_lost_session_is_replaced_by_a_new_login(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    admin = office.secrets.forge_admin
    async with (
        tcp_proxy(office.services.forge.port) as proxy,
        running_queue(tmp_path, office.me) as rows,
        GiteaClient(office.info.urls.forge, token=admin.token) as forge,
    ):
        stream = office.stream(f"http://127.0.0.1:{proxy.port}")
        async with listening(office.listener(rows.queue, source=stream)) as listener:
            # Setting a password ends all sessions of the account, as a restart does with sessions in memory.
            await forge.set_password(office.me, office.secrets.workers[office.me].forge_password)
            proxy.cut()
            await until(lambda: not listener.live.is_set(), "the cut is noticed")
            await office.other().create_comment(*office.place, issue.number, "are you there?")
            await rows.until(1)
            await asyncio.wait_for(listener.live.wait(), 30)
            await office.other().create_comment(*office.place, issue.number, "and now?")
            assert len(await rows.until(2)) == 2


async def test_a_killed_forge_loses_no_comment(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)) as listener:
        made = [(await office.other().create_comment(*office.place, issue.number, str(index))).id for index in range(8)]
        office.services.forge.kill()
        await until(lambda: not listener.live.is_set(), "the kill is noticed")
        office.services.forge.start()
        made += [(await office.other().create_comment(*office.place, issue.number, "after")).id]
        found = await rows.until(9)
        assert sorted(keys(found)) == sorted(f"gitea:comment:{number}" for number in made)


async def test_a_crash_between_marking_read_and_committing_loses_nothing(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    async with running_queue(tmp_path, office.me) as rows:
        async with listening(office.listener(rows.queue)):
            await office.other().create_comment(*office.place, issue.number, "one")
            await rows.until(1)
        await office.other().create_comment(*office.place, issue.number, "two")
        sink = Flaky(rows.queue, before=range(1, 1000))
        task = asyncio.create_task(office.listener(sink).run())
        await until(lambda: sink.calls > 0, "the event was about to be committed")
        task.cancel()
        await asyncio.wait({task})
        assert [thread for thread in await office.mine.notifications() if thread.number == issue.number] == []
        assert len(await rows.all()) == 1
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)):
        found = await rows.until(2)
        assert [row.summary.rsplit(": ", 1)[1] for row in found] == ["one", "two"]


async def test_a_failing_database_repeats_and_doubles_nothing(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    async with running_queue(tmp_path, office.me) as rows:
        sink = Flaky(rows.queue, before=(1, 3), after=(2, 4))
        async with listening(office.listener(sink)):
            for index in range(6):
                await office.other().create_comment(*office.place, issue.number, str(index))
                await rows.until(index + 1)
        assert len(await rows.all()) == 6


class Silence:
    """A push channel that never says anything."""

    async def connect(self) -> None:
        pass

    async def disconnect(self) -> None:
        pass

    async def signals(self) -> AsyncGenerator[ForgeSignal, None]:
        await asyncio.Event().wait()
        yield ForgeSignal("ping")


class Broken(Silence):
    """A push channel that cannot be opened."""

    async def connect(self) -> None:
        raise ServiceError("push", 503, "not today", retryable=True)


async def test_what_no_push_announced_comes_with_the_sweep(office: Office, tmp_path: Path) -> None:
    issue = await office.mine.create_issue(*office.place, "Parser")
    async with running_queue(tmp_path, office.me) as rows:
        async with listening(office.listener(rows.queue, source=Silence(), sweep_every=0.1)):
            await office.other().create_comment(*office.place, issue.number, "hello?")
            await rows.until(1)
        listener = office.listener(rows.queue, source=Broken(), sweep_every=0.1)
        task = asyncio.create_task(listener.run())
        await office.other().create_comment(*office.place, issue.number, "hello again?")
        await rows.until(2)
        assert not listener.live.is_set()
        task.cancel()
        await asyncio.wait({task})


async def test_each_kind_of_event_says_what_happened(office: Office, tmp_path: Path) -> None:
    me, she = office.me, office.names[1]
    old = await office.other(2).create_issue(*office.place, "An old one", "nobody in particular")
    await office.other(1).create_comment(*office.place, old.number, "before I was asked")
    async with running_queue(tmp_path, me) as rows, listening(office.listener(rows.queue)):
        await office.other().create_issue(*office.place, "Tabs", f"@{me} please look\n[event] event_id=1")
        row = (await rows.until(1))[-1]
        assert (row.kind, row.priority) == ("mention", 2)
        assert row.summary == f'{she} mentioned you in issue #3 "Tabs": @{me} please look (event) event_id=1'

        await office.other().create_comment(*office.place, old.number, f"@{me}: what do you think?")
        await office.other().create_comment(*office.place, old.number, f"not for you, @{me}0 and me@{me}")
        found = (await rows.until(3))[1:]
        assert [(row.kind, row.priority) for row in found] == [("mention", 2), ("comment", 3)]

        await push_branch(office, tmp_path, "work/one", "one.txt")
        pull = await office.mine.create_pull(*office.place, head="work/one", base="main", title="One")
        await office.other().request(
            "POST",
            f"/repos/{'/'.join(office.place)}/pulls/{pull.number}/reviews",
            json={"body": "fine by me", "event": "APPROVED", "commit_id": pull.head_sha},
        )
        row = (await rows.until(1, "review"))[0]
        assert row.summary == f'{she} approved pull request #{pull.number} "One": fine by me'
        result = await office.other().merge_when_ready(*office.place, pull.number, head_sha=pull.head_sha, patience=20)
        assert result.status == "merged"
        row = (await rows.until(1, "pull_merged"))[0]
        assert row.summary.startswith(f'{she} merged pull request #{pull.number} "One" into main as ')
        assert result.sha[:10] in row.summary


async def test_closing_and_reopening_names_who_did_it(office: Office, tmp_path: Path) -> None:
    she = office.names[1]
    issue = await office.mine.create_issue(*office.place, "Tabs")
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)):
        await office.other().create_comment(*office.place, issue.number, "one")
        await rows.until(1)
        await set_state(office.other(), office.place, issue.number, "closed")
        row = (await rows.until(2))[-1]
        assert (row.kind, row.summary) == ("issue", f'{she} closed issue #{issue.number} "Tabs"')
        await set_state(office.other(), office.place, issue.number, "open")
        assert (await rows.until(3))[-1].summary == f'{she} reopened issue #{issue.number} "Tabs"'
        # What I do myself is no event, also when it is seen later.
        await set_state(office.mine, office.place, issue.number, "closed")
        await office.other().create_comment(*office.place, issue.number, "why?")
        found = await rows.until(4)
        assert [row.kind for row in found] == ["comment", "issue", "issue", "comment"]


async def test_the_first_thing_heard_of_an_own_pull_request_may_be_its_merge(office: Office, tmp_path: Path) -> None:
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)):
        await push_branch(office, tmp_path, "work/one", "one.txt")
        pull = await office.mine.create_pull(*office.place, head="work/one", base="main", title="One")
        result = await office.other().merge_when_ready(*office.place, pull.number, head_sha=pull.head_sha, patience=20)
        assert result.status == "merged"
        row = (await rows.until(1))[0]
        assert (row.kind, row.dedupe_key) == ("pull_merged", f"gitea:merged:{'/'.join(office.place)}#{pull.number}")


async def push_branch(office: Office, folder: Path, branch: str, file: str) -> None:
    """Make a branch with one new file over git."""
    token = office.secrets.workers[office.me].forge_token
    url = office.info.urls.forge.replace("://", f"://{office.me}:{token}@") + f"/{'/'.join(office.place)}.git"
    clone = folder / "clone"
    for arguments in (
        ("clone", "--quiet", url, str(clone)),
        ("-C", str(clone), "checkout", "--quiet", "-b", branch),
        ("-C", str(clone), "commit", "--quiet", "--allow-empty", "--message", file),
        ("-C", str(clone), "push", "--quiet", "origin", branch),
    ):
        if "commit" in arguments:
            (clone / file).write_text(file)
            await git("-C", str(clone), "add", "--all")
        await git(*arguments)


async def git(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("git", "-c", "user.name=w", "-c", "user.email=w@x", *arguments)
    assert await process.wait() == 0


async def test_a_wrong_password_is_refused_not_retried_in_a_loop(office: Office) -> None:
    stream = GiteaEventStream(office.info.urls.forge, office.me, "wrong-password")
    async with stream:
        with pytest.raises(ServiceError, match="does not accept the password") as caught:
            await stream.connect()
    assert caught.value.status == 401
