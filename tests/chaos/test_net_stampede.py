"""A service that was restarted under a large team: everybody comes back, and not in one moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agensh.clients.board import Released, StreamOpened
from agensh.clients.gitea_events import ForgeSignal
from agensh.clients.http import backoff, new_http_client
from agensh.clients.mattermost import MattermostClient
from agensh.clients.mattermost_ws import MattermostSocket
from agensh.clock import Clock, SystemClock
from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from agensh.rundir import WorkerSecrets
from router.backends import CHAT_COMEBACKS, CONNECTIONS, FORGE_COMEBACKS, ServiceBackends
from router.events import NewEvent
from router.feed import BoardFeed
from router.listeners import base as listener_module
from router.listeners.base import Listener
from router.listeners.gitea import GiteaListener
from router.listeners.mattermost import MattermostListener
from router.posts import PostFeed
from tests.support.chaos import LONG, either
from tests.support.chat_server import ADMIN, PASSWORD, RunningChat, running_chat
from tests.support.clock import ManualClock
from tests.support.queues import until
from tests.support.router_stage import new_run
from tests.support.tcp_proxy import tcp_proxy

T = TypeVar("T")

TEAM = 1024
GROUP = 64  # listeners of one host
PATIENCE = either(60.0, 300.0)  # seconds


@pytest.fixture
def _same_dice() -> Iterator[None]:
    """Throw the same dice every time: what is asserted of chance holds for these."""
    state = random.getstate()
    random.seed(1024)
    yield
    random.setstate(state)


class Sink:
    """Takes events and forgets them."""

    def __init__(self, enough: int = 0, cursors: Mapping[str, str] | None = None) -> None:
        self.events: list[str] = []
        self.full = asyncio.Event()
        """Set from `enough` events on."""
        self._enough = enough
        self._cursors: dict[str, str] = dict(cursors or {})

    async def put(self, events: Sequence[NewEvent], cursor: Mapping[str, str]) -> int:
        self.events += [event.summary for event in events]
        self._cursors.update(cursor)
        if len(self.events) >= self._enough:
            self.full.set()
        return len(events)

    async def cursor(self, source: str) -> str | None:
        return self._cursors.get(source)


class Restarted:
    """A service that all are connected to until it goes away; it is back after `away` seconds."""

    def __init__(self, clock: ManualClock, away: float) -> None:
        self.clock = clock
        self.away = away
        self.gone = asyncio.Event()
        self.gone_at = 0.0
        self.attempts: list[float] = []
        """Seconds after it went away."""

    def go(self) -> None:
        self.gone_at = self.clock.monotonic()
        self.gone.set()

    def attempt(self) -> None:
        """Somebody tries to connect."""
        if self.gone.is_set():
            self.attempts.append(self.clock.monotonic() - self.gone_at)
            if self.attempts[-1] < self.away:
                raise ServiceError("service", 0, "ConnectionRefusedError", retryable=True)

    def most_in_a_second(self, since: float = 0.0) -> int:
        times = [time for time in self.attempts if time >= since]
        return max(sum(time <= other < time + 1 for other in times) for time in times)


class Channel:
    """One listener's push channel to it."""

    def __init__(self, service: Restarted) -> None:
        self.service = service
        self.back = False

    async def connect(self) -> None:
        self.service.attempt()
        self.back = self.service.gone.is_set()

    async def disconnect(self) -> None:
        pass

    async def signals(self) -> AsyncGenerator[ForgeSignal, None]:
        if self.back:
            await asyncio.Event().wait()
        await self.service.gone.wait()
        yield ForgeSignal("ping")
        raise ServiceError("service", 0, "it was closed", retryable=True)


class Ear(Listener[ForgeSignal]):
    """A listener that reads nothing."""

    source_name = "ear"
    rounds = 0

    def on_connect(self) -> None:
        pass

    def on_signal(self, signal: ForgeSignal) -> bool:
        return False

    async def work(self, *, sweep: bool) -> None:
        self.rounds += 1


async def listeners_of_a_team(folder: Path, clock: Clock) -> tuple[GiteaListener, MattermostListener]:
    """The listeners that a node host of a large team makes for a worker."""
    run = new_run(folder, workers=2)
    secrets = run.secrets()
    one = next(iter(secrets.workers.values()))
    team: dict[str, WorkerSecrets] = {f"demo-worker{number}": one for number in range(1, TEAM + 1)}
    backends = ServiceBackends(run.info(), secrets.model_copy(update={"workers": team}), clock, workers=64)
    nothing: Any = None
    posts = PostFeed(nothing, clock, "channel")
    forge, chat = backends.listeners("demo-worker1", one, backends.clients("demo-worker1", one), nothing, posts)
    await backends.aclose()
    assert isinstance(forge, GiteaListener)
    assert isinstance(chat, MattermostListener)
    return forge, chat


@pytest.mark.usefixtures("_same_dice")
@pytest.mark.parametrize("kind", ["forge", "chat"])
async def test_a_team_of_1024_comes_back_over_many_seconds(kind: str, tmp_path: Path) -> None:
    forge, chat = await listeners_of_a_team(tmp_path, SystemClock())
    made, rate = (forge, FORGE_COMEBACKS) if kind == "forge" else (chat, CHAT_COMEBACKS)
    clock = ManualClock()
    service = Restarted(clock, away=3.0)
    ears = [
        Ear(
            f"w{number}",
            Channel(service),
            Sink(),
            clock,
            sweep_every=100_000.0,
            reconnect_first=made.reconnect_first,
            reconnect_longest=made.reconnect_longest,
        )
        for number in range(TEAM)
    ]
    tasks = [asyncio.create_task(ear.run()) for ear in ears]
    await clock.advance(60.0)
    assert all(ear.live.is_set() for ear in ears)
    rounds = [ear.rounds for ear in ears]
    service.go()
    # Three waits at most, each up to twice as long as the one before: the first may end before the service is back.
    await clock.advance(made.reconnect_first * 7)
    assert all(ear.live.is_set() for ear in ears), "everybody is back"
    assert len(service.attempts) <= TEAM * 1.5, "few tried twice"
    assert service.most_in_a_second() <= rate * 2
    assert max(ear.rounds - before for ear, before in zip(ears, rounds, strict=True)) <= 2, "one reading, one recheck"
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_small_team_comes_back_at_once(tmp_path: Path) -> None:
    run = new_run(tmp_path, workers=8)
    secrets = run.secrets()
    backends = ServiceBackends(run.info(), secrets, SystemClock())
    one = secrets.workers["demo-worker1"]
    nothing: Any = None
    posts = PostFeed(nothing, SystemClock(), "channel")
    for listener in backends.listeners("demo-worker1", one, backends.clients("demo-worker1", one), nothing, posts):
        assert isinstance(listener, GiteaListener | MattermostListener)
        assert listener.reconnect_first == 1.0
    await backends.aclose()


@pytest.mark.usefixtures("_same_dice")
async def test_the_hosts_of_a_large_team_come_back_to_a_board_one_by_one() -> None:
    clock = ManualClock()
    service = Restarted(clock, away=3.0)

    class Board:
        async def read(self, *, limit: int = 0, after: int | None = None, type: EntryType | None = None) -> list[Entry]:
            return []

        async def follow(self, after: int) -> AsyncGenerator[Entry | Released | StreamOpened, None]:
            service.attempt()
            yield StreamOpened()
            if service.gone.is_set():
                await asyncio.Event().wait()
            await service.gone.wait()
            raise ServiceError("board", 0, "the stream was cut", retryable=True)

    feeds = [BoardFeed(Board(), clock) for _ in range(16)]
    tasks = [asyncio.create_task(feed.run()) for feed in feeds]
    await clock.settle()
    service.go()
    await clock.advance(40.0)
    assert all(feed.connected for feed in feeds)
    back = [time for time in service.attempts if time >= 3.0]
    assert len(back) == 16
    assert max(back) - min(back) > 1.0
    assert service.most_in_a_second(3.0) <= 12
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Quick:
    """The machine's own time, ten times as fast for whoever sleeps."""

    def time(self) -> float:
        return SystemClock().time()

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds / 10))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningChat]:
    with running_chat(tmp_path_factory.mktemp("chat")) as running:
        yield running


async def some_at_a_time(names: Sequence[str], make: Callable[[str], Awaitable[T]]) -> list[T]:
    """Make one thing a name."""
    made: list[T] = []
    for start in range(0, len(names), 16):
        made += await asyncio.gather(*(make(name) for name in names[start : start + 16]))
    return made


async def bots(chat: RunningChat, count: int) -> tuple[str, list[str], list[str]]:
    """A team's channel with that many bots in it: the channel's id, their names, their tokens."""
    async with MattermostClient(chat.url) as first:
        token = await first.login(ADMIN, PASSWORD)
    names = [f"crowd-worker{number}" for number in range(1, count + 1)]
    async with MattermostClient(chat.url, token=token) as admin:
        team = await admin.create_team("crowd")
        channel = await admin.create_channel(team.id, "task")
        ids = [bot.id for bot in await some_at_a_time(names, lambda name: admin.create_bot(name, description="many"))]
        await admin.add_team_members(team.id, ids)
        await admin.add_channel_members(channel.id, ids)
        tokens = await some_at_a_time(ids, lambda user_id: admin.create_user_token(user_id, "crowd"))
    return channel.id, names, tokens


async def anchors(client: MattermostClient) -> dict[str, str]:
    """Return the cursors of a listener that has read all channels but for their newest post."""
    posts = {channel.id: await client.all_posts(channel.id) for channel in await client.my_channels()}
    return {f"mattermost:channel:{channel}": found[-2].id for channel, found in posts.items() if len(found) > 1}


async def say(writer: MattermostClient, channel: str, text: str) -> None:
    """Post, however long the chat takes to come to it, once."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(ServiceError):
                if any(post.message == text for post in await writer.posts(channel, limit=10)):
                    return
                await writer.post(channel, text)
                return


@pytest.mark.timeout(either(120, 900))
async def test_a_restarted_chat_gets_all_its_listeners_back_and_none_missed_a_post(
    chat: RunningChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, speakers = either(64, TEAM), 1
    first = count / CHAT_COMEBACKS
    first_waits: list[float] = []

    def watched(attempt: int, **bounds: float) -> float:
        wait = backoff(attempt, **bounds)
        if attempt == 0 and bounds.get("first") == first:
            first_waits.append(wait)
        return wait

    monkeypatch.setattr(listener_module, "backoff", watched)
    channel, names, tokens = await bots(chat, count + speakers)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(chat.port))
        writer = await stack.enter_async_context(MattermostClient(chat.url, token=tokens[0]))
        # That a thousand accounts joined is not to be read a thousand times.
        read = await anchors(writer)
        sinks = {name: Sink(4, read) for name in names[speakers:]}
        listeners: list[MattermostListener] = []
        known: dict[str, str] = {}
        clock: Clock = SystemClock() if LONG else Quick()
        for name, token in zip(names[speakers:], tokens[speakers:], strict=True):
            if len(listeners) % GROUP == 0:  # each host has a pool of its own
                http = await stack.enter_async_context(new_http_client(limits=CONNECTIONS))
            client = MattermostClient(chat.url, token=token, http=http)
            socket = MattermostSocket(proxy.url, token, SystemClock())
            listeners.append(
                MattermostListener(
                    name, client, socket, sinks[name], clock, sweep_every=36_000.0, reconnect_first=first, names=known
                )
            )
        tasks: list[asyncio.Task[None]] = []

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        stack.push_async_callback(stop)

        async def all_live() -> None:
            async with asyncio.timeout(PATIENCE):
                for listener in listeners[: len(tasks)]:
                    await listener.live.wait()

        for start in range(0, count, GROUP):
            tasks += [asyncio.create_task(listener.run()) for listener in listeners[start : start + GROUP]]
            await all_live()
        assert proxy.accepted >= count
        for text in ("before", "again"):
            await say(writer, channel, text)
        chat.kill()
        await until(lambda: not any(listener.live.is_set() for listener in listeners), "the kill is noticed")
        await asyncio.to_thread(chat.start)
        await say(writer, channel, "after")
        await all_live()
        assert len(first_waits) >= count
        tenths = [int(wait / first * 10) for wait in first_waits]
        assert max(tenths.count(tenth) for tenth in range(10)) <= len(first_waits) * 0.4, (
            "they are spread over the time"
        )
        await say(writer, channel, "at last")

        async with asyncio.timeout(PATIENCE):
            for sink in sinks.values():
                await sink.full.wait()
        assert {len(sink.events) for sink in sinks.values()} == {4}
        assert {text.rsplit(": ", 1)[1] for sink in sinks.values() for text in sink.events} == {
            "before", "again", "after", "at last",
        }  # fmt: skip
        assert not any(task.done() for task in tasks)
