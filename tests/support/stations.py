"""What hears a service through a proxy, each of the three kinds alike: the board's feed, the chat's and the forge's
listener."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.gitea_events import GiteaEventStream
from agensh.clients.http import new_http_client
from agensh.clients.mattermost import MattermostClient
from agensh.clients.mattermost_ws import MattermostSocket
from agensh.clock import Clock, SystemClock
from agensh.entries import EntryType
from agensh.provision import provision
from agensh.rundir import RunInfo, RunSecrets
from router.backends import BoardReader
from router.feed import BoardFeed
from router.listeners.base import Listener
from router.listeners.gitea import GiteaListener
from router.listeners.mattermost import MattermostListener
from tests.support.queues import Rows, running_queue
from tests.support.services import Services, running_services
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

PATIENCE = 40.0  # seconds
PACE: Any = {"sweep_every": 600.0, "reconnect_first": 0.05, "reconnect_longest": 0.3}


@dataclass(frozen=True, slots=True)
class Team:
    """A provisioned team of two: the first hears, the second speaks."""

    services: Services
    info: RunInfo
    secrets: RunSecrets

    @property
    def me(self) -> str:
        return self.info.spec.worker_names[0]

    @property
    def other(self) -> str:
        return self.info.spec.worker_names[1]


@contextmanager
def provisioned_team(folder: Path, name: str = "net", **board: Any) -> Iterator[Team]:
    """Run the three services over `folder` and provision a team of two on them; `board` are settings of the board."""
    with running_services(folder, **board) as services:
        run = services.new_run(folder / "run", name)
        secrets = asyncio.run(provision(run, run.info(), run.secrets(), progress=lambda _line: None))
        yield Team(services, run.info(), secrets)


async def another_team(team: Team, folder: Path, name: str) -> Team:
    """Provision one more team on the same services: for a test that spoils it."""
    run = team.services.new_run(folder / name, name)
    secrets = await provision(run, run.info(), run.secrets(), progress=lambda _line: None)
    return Team(team.services, run.info(), secrets)


class Station(ABC):
    """Hears one service through `proxy`; what is said does not go through it."""

    name: str
    port: int

    def __init__(self, team: Team, proxy: TcpProxy, clock: Clock, folder: Path, stack: AsyncExitStack) -> None:
        self.team = team
        self.proxy = proxy
        self.url = proxy.url
        self.clock = clock
        self.folder = folder
        self.stack = stack
        self.task: asyncio.Task[None] | None = None
        self.said: list[str] = []

    async def speak(self, count: int = 1) -> None:
        """Say that many things that nobody said before."""
        for _ in range(count):
            text = f"{self.folder.name} says {len(self.said)}"
            await self.say(text)
            self.said.append(text)

    async def all_heard(self) -> None:
        """Wait until everything that was said was heard; AssertionError when anything was heard twice."""
        mine: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    mine = [text for text in await self.heard() if text.startswith(f"{self.folder.name} says ")]
                    if set(mine) >= set(self.said):
                        break
                    await asyncio.sleep(0.02)
        except TimeoutError:
            missing = sorted(set(self.said) - set(mine))
            raise AssertionError(f"never heard: {missing}; heard: {mine}; task: {self.task}") from None
        assert sorted(mine) == sorted(self.said), "heard twice"

    @abstractmethod
    async def open(self) -> None:
        """Make what hears, without starting it."""

    @abstractmethod
    async def say(self, text: str) -> None:
        """Say something that is to be heard."""

    @abstractmethod
    async def heard(self) -> list[str]:
        """Return what was heard, in order."""

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether it thinks that it hears."""

    @abstractmethod
    async def run(self) -> None:
        """Hear until cancelled."""

    @abstractmethod
    async def revoke(self) -> None:
        """Take away what lets it in."""


class BoardStation(Station):
    """The board's feed."""

    name = "board"
    most_tokens = 1

    async def open(self) -> None:
        team = self.team
        http = await self.stack.enter_async_context(new_http_client())
        tokens = [worker.board_token for worker in team.secrets.workers.values()][: self.most_tokens]
        readers = [BoardClient(self.url, token, team.info.board, http) for token in tokens]
        url, board = team.services.board_url, team.info.board
        other = BoardClient(url, team.secrets.workers[team.other].board_token, board)
        self.other = await self.stack.enter_async_context(other)
        self.feed = BoardFeed(BoardReader(readers), self.clock)
        self.since = await self.other.head()

    async def say(self, text: str) -> None:
        await self.other.write(EntryType.FACT, text)

    async def heard(self) -> list[str]:
        return [entry.content for entry in self.feed.after(self.since)]

    @property
    def live(self) -> bool:
        return self.feed.connected

    async def run(self) -> None:
        await self.feed.run()

    async def revoke(self) -> None:
        url, token = self.team.services.board_url, self.team.services.board_admin
        async with BoardClient(url, token, self.team.info.board) as admin:
            await admin.revoke_token(self.team.me)


class ListenerStation(Station):
    """A listener over the real queue."""

    rows: Rows
    listener: Listener[Any]

    async def heard(self) -> list[str]:
        return [row.summary.split(": ", 1)[1] for row in await self.rows.all() if ": " in row.summary]

    @property
    def live(self) -> bool:
        return self.listener.live.is_set()

    async def run(self) -> None:
        await self.listener.run()


class ChatStation(ListenerStation):
    """The chat's listener: websocket and REST."""

    name = "chat"

    async def open(self) -> None:
        team, enter = self.team, self.stack.enter_async_context
        mine = team.secrets.workers[team.me]
        client = await enter(MattermostClient(self.url, token=mine.chat_token, clock=self.clock))
        self.socket = MattermostSocket(self.url, mine.chat_token, SystemClock())
        url = team.services.chat.url
        self.other = await enter(MattermostClient(url, token=team.secrets.workers[team.other].chat_token))
        chat_team = await self.other.team_by_name(team.info.chat_team)
        self.channel = (await self.other.channel_by_name(chat_team.id, team.info.channel)).id
        self.rows = await enter(running_queue(self.folder, team.me))
        self.listener = MattermostListener(team.me, client, self.socket, self.rows.queue, self.clock, **PACE)

    async def say(self, text: str) -> None:
        await self.other.post(self.channel, text)

    async def revoke(self) -> None:
        url, secrets = self.team.services.chat.url, self.team.secrets
        async with MattermostClient(url, token=secrets.chat_admin.token) as admin:
            for token in await admin.user_tokens(secrets.workers[self.team.me].chat_user_id):
                await admin.revoke_token(token.id)


class ForgeStation(ListenerStation):
    """The forge's listener: server-sent events and REST."""

    name = "forge"

    async def open(self) -> None:
        team, enter = self.team, self.stack.enter_async_context
        mine = team.secrets.workers[team.me]
        self.place = (team.info.owner, team.info.repository)
        client = await enter(GiteaClient(self.url, token=mine.forge_token, clock=self.clock))
        stream = await enter(GiteaEventStream(self.url, team.me, mine.forge_password))
        url = team.services.forge.forge.url
        direct = await enter(GiteaClient(url, token=mine.forge_token))
        self.other = await enter(GiteaClient(url, token=team.secrets.workers[team.other].forge_token))
        self.issue = (await direct.create_issue(*self.place, self.folder.name)).number
        self.rows = await enter(running_queue(self.folder, team.me))
        self.listener = GiteaListener(team.me, client, stream, self.rows.queue, self.clock, **PACE)

    async def say(self, text: str) -> None:
        await self.other.create_comment(*self.place, self.issue, text)

    async def revoke(self) -> None:
        admin = self.team.secrets.forge_admin
        async with GiteaClient(self.team.services.forge.forge.url, token=admin.token) as forge:
            await forge.set_password(self.team.me, "another-password-1")


STATIONS: dict[str, type[Station]] = {station.name: station for station in (BoardStation, ChatStation, ForgeStation)}


@asynccontextmanager
async def station(
    kind: str, team: Team, folder: Path, clock: Clock | None = None, *, direct: bool = False
) -> AsyncIterator[Station]:
    """Yield a station of that name, which hears already; with `direct` it goes by no proxy."""
    services = team.services
    ports = {
        "board": int(services.board_url.rsplit(":", 1)[1]),
        "chat": services.chat.port,
        "forge": services.forge.port,
    }
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(ports[kind]))
        made = STATIONS[kind](team, proxy, clock or SystemClock(), folder, stack)
        if direct:
            made.url = f"http://127.0.0.1:{ports[kind]}"
        await made.open()
        made.task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            made.task.cancel()
            await asyncio.wait({made.task})
