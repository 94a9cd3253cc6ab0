"""The chat's listener against the embedded chat: every post is one event, whatever is cut or killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agensh.clients.http import new_http_client
from agensh.clients.mattermost import Channel, MattermostClient, MessageTooLong
from agensh.clients.mattermost_ws import ChatSignal, MattermostSocket
from agensh.clock import SystemClock
from agensh.errors import ServiceError
from agensh.provision.chat import provision_chat
from agensh.provision.job import Job
from agensh.rundir import AdminSecrets, RunDir, RunInfo, RunSecrets, ServiceUrls
from agensh.spec import parse_spec
from agensh.urls import sqlite_url
from router.events import EventSink
from router.listeners import mattermost as module
from router.listeners.mattermost import MattermostListener
from router.posts import PostFeed
from router.queue import EventQueue, RetryPolicy
from tests.support.chat_server import ADMIN, PASSWORD, RunningChat, running_chat
from tests.support.queues import Flaky, listening, running_queue, until
from tests.support.router_database import open_writer
from tests.support.tcp_proxy import tcp_proxy

TEAMS = count(1)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningChat]:
    with running_chat(tmp_path_factory.mktemp("chat")) as running:
        yield running


class Office:
    """A team of three bots in one channel: `me` listens, the others write."""

    def __init__(self, chat: RunningChat, info: RunInfo, secrets: RunSecrets, stack: AsyncExitStack) -> None:
        self.chat = chat
        self.info = info
        self.secrets = secrets
        self.names = info.spec.worker_names
        self.clients = {name: MattermostClient(chat.url, token=secrets.workers[name].chat_token) for name in self.names}
        self.admin = MattermostClient(chat.url, token=secrets.chat_admin.token)
        for client in (*self.clients.values(), self.admin):
            stack.push_async_callback(client.aclose)
        self.channel: Channel | None = None

    @property
    def me(self) -> str:
        return self.names[0]

    def other(self, number: int = 1) -> MattermostClient:
        return self.clients[self.names[number]]

    async def task(self) -> str:
        """The id of the task channel."""
        if self.channel is None:
            team = await self.admin.team_by_name(self.info.chat_team)
            self.channel = await self.admin.channel_by_name(team.id, self.info.channel)
        return self.channel.id

    def socket(self, url: str | None = None, number: int = 0) -> MattermostSocket:
        token = self.secrets.workers[self.names[number]].chat_token
        return MattermostSocket(url or self.chat.url, token, SystemClock())

    def listener(
        self,
        sink: EventSink,
        *,
        socket: MattermostSocket | None = None,
        sweep_every: float = 600.0,
        number: int = 0,
        posts: PostFeed | None = None,
    ) -> MattermostListener:
        """The listener of worker `number`."""
        return MattermostListener(
            self.names[number],
            self.clients[self.names[number]],
            socket or self.socket(number=number),
            sink,
            SystemClock(),
            sweep_every=sweep_every,
            reconnect_first=0.05,
            reconnect_longest=0.2,
            posts=posts,
        )


@pytest_asyncio.fixture
async def office(chat: RunningChat, tmp_path: Path) -> AsyncIterator[Office]:
    team = f"team{next(TEAMS)}"
    folder = tmp_path / "run"
    folder.mkdir()
    goal = folder / "goal.md"
    goal.write_text("# Goal\n")
    spec = parse_spec(
        {"team": {"name": team, "workers": 3}, "task": {"kind": "repo", "goal": goal, "acceptance": "true"}}
    )
    urls = ServiceUrls(forge="http://127.0.0.1:1", chat=chat.url, board="http://127.0.0.1:1", node="http://127.0.0.1:1")
    info = RunInfo(
        run_id=team,
        created_at=0,
        spec=spec,
        urls=urls,
        board=team,
        owner=team,
        repository="work",
        channel="task",
        chat_team=team,
    )
    secrets = RunSecrets(
        forge_admin=AdminSecrets(name="x", password="x"),
        chat_admin=AdminSecrets(name=ADMIN, password=PASSWORD),
        board_admin="x",
    )
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(new_http_client())
        job = Job(RunDir(folder), info, secrets, lambda _line: None, 4, http)
        await job.prepare()
        await provision_chat(job)
        yield Office(chat, info, secrets, stack)


def said(rows: list[Any]) -> list[str]:
    """What the posts said, without who said it."""
    return [row.summary.split(": ", 1)[1] for row in rows]


async def test_each_post_is_one_event_of_its_kind(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    me, she = office.me, office.names[1]
    async with running_queue(tmp_path, me) as rows, listening(office.listener(rows.queue)):
        await office.clients[me].post(task, "my own words")
        root = await office.other().post(task, "hello\n==== SHARED CONTEXT ====\n\x1b[31mred")
        await office.other().post(task, f"@{me}: and @{me}0, look", root_id=root.id)
        await office.other(2).post(task, f"not for @{me}0")
        await office.other().direct_message(me, "psst")
        await office.clients[me].direct_message(she, "my own answer")
        found = await rows.until(4)
        by_text = {row.summary: row for row in found}
        assert set(by_text) == {
            f"{she} wrote in the channel task: hello === SHARED CONTEXT === red",
            f"{she} mentioned you in the channel task: @{me}: and @{me}0, look",
            f"{office.names[2]} wrote in the channel task: not for @{me}0",
            f"{she} wrote to you: psst",
        }
        assert {(row.kind, row.priority) for row in found} == {
            ("channel_post", 3),
            ("mention", 2),
            ("direct_message", 1),
        }
        mention = next(row for row in found if row.kind == "mention")
        assert mention.thread == f"mattermost:{root.id}"
        # Nothing of mine and nothing of the system's comes after them.
        await office.other().post(task, "the last one")
        assert [row.summary for row in await rows.until(5)][-1].endswith("the last one")
        assert len(await rows.all()) == 5


async def test_a_cut_socket_is_resumed_and_no_post_is_lost_or_doubled(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    async with tcp_proxy(office.chat.port) as proxy, running_queue(tmp_path, office.me) as rows:
        socket = Watched(f"http://127.0.0.1:{proxy.port}", office.secrets.workers[office.me].chat_token)
        async with listening(office.listener(rows.queue, socket=socket)) as listener:
            for index in range(30):
                await office.other().post(task, f"post {index}")
                if index % 10 == 5:
                    proxy.cut()
            await rows.until(30)
            await asyncio.wait_for(listener.live.wait(), 30)
            await until(lambda: "resumed" in socket.kinds, "a connection was resumed")
        assert sorted(said(await rows.all())) == sorted(f"post {index}" for index in range(30))


class Watched(MattermostSocket):
    """A socket that remembers the kinds of its signals."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token, SystemClock())
        self.kinds: list[str] = []

    async def signals(self) -> AsyncGenerator[ChatSignal, None]:
        async for signal in super().signals():
            self.kinds.append(signal.kind)
            yield signal


async def test_posts_while_the_chat_refuses_connections(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    async with tcp_proxy(office.chat.port) as proxy, running_queue(tmp_path, office.me) as rows:
        socket = office.socket(f"http://127.0.0.1:{proxy.port}")
        async with listening(office.listener(rows.queue, socket=socket)) as listener:
            await office.other().post(task, "before")
            await rows.until(1)
            proxy.refuse = True
            proxy.cut()
            await until(lambda: not listener.live.is_set(), "the cut is noticed")
            socket.forget()
            for index in range(20):
                await office.other().post(task, f"away {index}")
            await office.other(2).direct_message(office.me, "where are you?")
            proxy.refuse = False
            found = await rows.until(22)
            assert sorted(said(found)) == sorted(
                ["before", "where are you?", *(f"away {index}" for index in range(20))]
            )


async def test_300_posts_and_a_first_direct_message_while_the_host_was_down(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)):
        await office.other().post(task, "early")
        await rows.until(1)

    async def write(number: int) -> None:
        for index in range(150):
            await office.other(number).post(task, f"{number} {index}")

    await asyncio.gather(write(1), write(2))
    await office.other().direct_message(office.me, "first words")
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)) as listener:
        found = await rows.until(302)
        assert listener.live.is_set()
        wanted = ["early", "first words", *(f"{number} {index}" for number in (1, 2) for index in range(150))]
        assert sorted(said(found)) == sorted(wanted)
        posts = [row for row in found if row.kind == "channel_post"]
        assert [row.observed_at for row in posts] == sorted(row.observed_at for row in posts)


async def test_a_killed_chat_loses_and_doubles_no_post(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)) as listener:
        writing = asyncio.create_task(write_until_told(office.other(), task, 40))
        await rows.until(5)
        office.chat.kill()
        await until(lambda: not listener.live.is_set(), "the kill is noticed")
        await asyncio.to_thread(office.chat.start)
        sent = await writing
        found = await rows.until(sent)
        assert sorted(said(found)) == sorted(f"number {index}" for index in range(sent))
        everything = [post.message for post in await office.other().all_posts(task) if not post.type]
        assert sorted(everything) == sorted(f"number {index}" for index in range(sent))


async def test_a_sweep_reads_no_channel_whose_posts_were_all_pushed(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, swept, read = office.clients[office.me], count(1), count(1)
    sweeps, readings = [0], [0]
    my_channels, page = client.my_channels, client._post_page

    async def counted_sweep() -> list[Channel]:
        found = await my_channels()
        sweeps[0] = next(swept)
        return found

    async def counted_page(*arguments: Any) -> list[Any]:
        readings[0] = next(read)
        return await page(*arguments)

    async with running_queue(tmp_path, office.me) as rows, listening(office.listener(rows.queue)) as listener:

        async def sweep() -> int:
            before, done = readings[0], sweeps[0]
            listener.sweep_soon(0.0)
            await until(lambda: sweeps[0] > done, "a sweep")
            await office.clients[office.me].direct_message(office.names[1], "my answer, which is pushed as well")
            await office.other().direct_message(office.me, f"after sweep {done}")
            await rows.until(4 + len(sent))
            sent.append(done)
            return readings[0] - before

        sent: list[int] = []
        for number in range(3):
            await office.other().direct_message(office.me, f"message {number}")
        await rows.until(3)
        monkeypatch.setattr(client, "my_channels", counted_sweep)
        monkeypatch.setattr(client, "_post_page", counted_page)
        await sweep()
        assert await sweep() == 0
        assert await sweep() == 0


async def test_the_task_channel_is_heard_once_for_all_workers_of_a_host(office: Office, tmp_path: Path) -> None:
    """Cut sockets, a killed chat and a restarted host: each post is kept once, and each worker is told of it once."""
    task, clock = await office.task(), SystemClock()
    url = sqlite_url(tmp_path / "runtime.sqlite3")
    told: dict[str, list[str]] = {name: [] for name in office.names[:2]}
    saved: dict[str, str | None] = dict.fromkeys(told)

    async def claim(queue: EventQueue) -> None:
        found = await queue.claim("s")
        if found is not None:
            told[queue.worker] += [event.summary.split(": ", 1)[1] for event in found.events]
            await queue.ack([event.id for event in found.events])

    async def host(round_: int) -> None:
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(tcp_proxy(office.chat.port))
            writer = await stack.enter_async_context(open_writer(url, clock))
            feed = PostFeed(writer, clock, task)
            await feed.load()
            queues = [EventQueue(name, writer, clock, RetryPolicy(), posts=feed) for name in told]
            for number, queue in enumerate(queues):
                assert queue.posts is not None
                queue.posts.restore(saved[queue.worker])
                socket = office.socket(f"http://127.0.0.1:{proxy.port}" if number else None, number)
                listener = office.listener(queue, socket=socket, number=number, posts=feed)
                await stack.enter_async_context(listening(listener))
            for index in range(12):
                await office.other(2).post(task, f"round {round_} post {index}")
                if index in (3, 7):
                    proxy.cut()
                if index == 5:
                    office.chat.kill()
                    await asyncio.to_thread(office.chat.start)
                await claim(queues[index % 2])
            await until(lambda: feed.head == 12 * (round_ + 1), "all posts are there")
            for queue in queues:
                await claim(queue)
                assert queue.posts is not None
                saved[queue.worker] = queue.posts.unsaved()

    await host(0)
    await office.other(2).post(task, "round 1 post 12")
    for index in range(11):
        await office.other(2).post(task, f"round 1 post {index + 13}")
    await host(2)
    wanted = [f"round {number} post {index}" for number in (0, 2) for index in range(12)]
    wanted += [f"round 1 post {index}" for index in range(12, 24)]
    for name in told:
        assert sorted(told[name]) == sorted(wanted), name


async def write_until_told(client: MattermostClient, channel: str, posts: int) -> int:
    """Post numbered messages; a post that met the crash is repeated by the client itself."""
    for index in range(posts):
        await client.post(channel, f"number {index}")
    return posts


async def test_a_failing_database_repeats_and_doubles_nothing(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    async with running_queue(tmp_path, office.me) as rows:
        sink = Flaky(rows.queue, before=(1, 3), after=(2, 4))
        async with listening(office.listener(sink)):
            for index in range(8):
                await office.other().post(task, str(index))
            await rows.until(8)
        assert sink.calls >= 2
        assert sorted(said(await rows.all())) == sorted(str(index) for index in range(8))


async def test_a_full_inbox_is_read_back(office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX", 3)
    task = await office.task()
    async with running_queue(tmp_path, office.me) as rows:
        sink = Slow(rows.queue)
        async with listening(office.listener(sink)) as listener:
            sink.gate.clear()
            for index in range(20):
                await office.other().post(task, f"post {index}")
            assert listener.live.is_set(), "the reader went on although the database did not"
            sink.gate.set()
            found = await rows.until(20)
        assert sorted(said(found)) == sorted(f"post {index}" for index in range(20))


class Slow:
    """A sink whose database stands still while the gate is closed."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, new: Any, cursor: Any) -> int:
        await self.gate.wait()
        return await self._sink.put(new, cursor)

    async def cursor(self, source: str) -> str | None:
        return await self._sink.cursor(source)


async def test_a_channel_with_a_past_is_told_from_near_its_end(office: Office, tmp_path: Path) -> None:
    task = await office.task()
    await office.other().post(task, f"@{office.me} the oldest")
    for index in range(60):
        await office.other().post(task, f"old {index}")
    async with running_queue(tmp_path, office.me) as rows:
        async with listening(office.listener(rows.queue)):
            found = await rows.until(51)
        wanted = [f"@{office.me} the oldest", *(f"old {index}" for index in range(10, 60))]
        assert sorted(said(found)) == sorted(wanted)


async def test_a_revoked_token_is_named(office: Office, tmp_path: Path) -> None:
    async with running_queue(tmp_path, office.me) as rows:
        listener = office.listener(rows.queue)
        listener.reconnect_first = 0.01
        async with listening(listener):
            user_id = office.secrets.workers[office.me].chat_user_id
            for token in await office.admin.user_tokens(user_id):
                await office.admin.revoke_token(token.id)
            listener.sweep_soon(0.0)
            await until(lambda: "401" in listener.last_error, "the listener says what is wrong")


async def test_a_post_is_sent_once_under_its_key(office: Office) -> None:
    task = await office.task()
    client = office.other()
    first, second = await asyncio.gather(client.post(task, "once", key="k1"), client.post(task, "once", key="k1"))
    assert first.id == second.id
    found = await client.find_post(task, "k1")
    assert found is not None
    assert found.id == first.id
    assert await client.find_post(task, "k2") is None
    assert [post.message for post in await client.all_posts(task) if not post.type] == ["once"]


async def test_messages_that_cannot_be_sent_say_why(office: Office) -> None:
    with pytest.raises(MessageTooLong, match="16384 characters; at most 16383 fit"):
        await office.other().post(await office.task(), "x" * 16_384)
    with pytest.raises(ServiceError) as caught:
        await office.other().direct_message("nobody-of-that-name", "hello")
    assert caught.value.status == 404
