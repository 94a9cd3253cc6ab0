"""What a node host asks of the services: the clients of its workers, one board stream, and the listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import httpx

from agensh.clients.board import BoardClient, Released, StreamOpened, WorkerState
from agensh.clients.gateway import GatewayClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.gitea_events import GiteaEventStream
from agensh.clients.http import new_http_client
from agensh.clients.mattermost import MattermostClient
from agensh.clients.mattermost_ws import MattermostSocket, PostedFrames
from agensh.clock import Clock
from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from agensh.rundir import RunInfo, RunSecrets, WorkerSecrets
from router.budget import UsageSource
from router.events import EventSink
from router.feed import FIRST_READ, EntrySource
from router.listeners.gitea import GiteaListener
from router.listeners.mattermost import Beginning, MattermostListener
from router.posts import PostFeed


@dataclass(frozen=True, slots=True)
class WorkerClients:
    """The services as one worker sees them, with its own tokens."""

    board: BoardClient
    chat: MattermostClient
    forge: GiteaClient


class Listener(Protocol):
    """Turns what one source shows into events, until it is cancelled."""

    live: asyncio.Event
    """Set while the source is heard."""

    async def run(self) -> None:
        """Listen."""
        ...


class Backends(Protocol):
    """The services of one run."""

    def feed_source(self) -> EntrySource:
        """Return what the node's one board stream reads from."""
        ...

    async def channel_id(self) -> str:
        """Return the id of the team's task channel."""
        ...

    def clients(self, worker: str, secrets: WorkerSecrets) -> WorkerClients:
        """Return the clients of one worker."""
        ...

    def listeners(
        self, worker: str, secrets: WorkerSecrets, clients: WorkerClients, sink: EventSink, posts: PostFeed
    ) -> Sequence[Listener]:
        """Return the listeners of one worker; `posts` takes those of the task channel."""
        ...

    def usage(self) -> UsageSource | None:
        """Return who tells what is spent; None in a run without a budget."""
        ...

    async def tell_workers(self, states: Sequence[WorkerState]) -> None:
        """Tell the board what the workers of this host do; ServiceError when it does not hear it."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


# The pool looks at each of its connections for each request, and 32 requests at once keep any of the services busy.
CONNECTIONS = httpx.Limits(max_connections=32, max_keepalive_connections=32)
SWEEP = 120.0  # seconds between two readings of a source that no push asked for
RECONNECT = 60.0  # seconds between two tries to connect at most
FASTEST = 10.0  # seconds
CHAT_COMEBACKS = 100.0  # connections a second that the whole team makes at most, on average, to a restarted chat
FORGE_COMEBACKS = 25.0  # the same to a restarted forge, for which a connection may be a login (a password's hash)
SHORTEST_COMEBACK = 1.0  # seconds


class BoardReader:
    """The board as a node host reads it: with one worker's token, or the next one's when that is refused.

    Any token of the board reads all of it, so a revoked one must not make a whole host deaf.
    """

    def __init__(self, clients: Sequence[BoardClient]) -> None:
        self._clients = clients
        self._chosen = 0

    async def read(
        self, *, limit: int = FIRST_READ, after: int | None = None, type: EntryType | None = None
    ) -> list[Entry]:
        """See `EntrySource`."""
        with self._client() as client:
            return await client.read(limit=limit, after=after, type=type)

    async def follow(self, after: int) -> AsyncGenerator[Entry | Released | StreamOpened, None]:
        """See `EntrySource`."""
        with self._client() as client:
            async with aclosing(client.follow(after)) as happenings:
                async for happening in happenings:
                    yield happening

    @contextmanager
    def _client(self) -> Iterator[BoardClient]:
        try:
            yield self._clients[self._chosen]
        except ServiceError as error:
            if error.status in {401, 403}:
                self._chosen = (self._chosen + 1) % len(self._clients)
            raise


class ServiceBackends:
    """The real services of a run. One connection pool a service serves all workers of the node."""

    def __init__(self, info: RunInfo, secrets: RunSecrets, clock: Clock, *, workers: int | None = None) -> None:
        """`workers` says how many of the run's workers this host runs (all by default)."""
        self._info = info
        self._secrets = secrets
        self._clock = clock
        self._board_http = new_http_client(limits=CONNECTIONS)
        self._chat_http = new_http_client(limits=CONNECTIONS)
        self._forge_http = new_http_client(limits=CONNECTIONS)
        # Every worker holds one event stream of the forge open; no request may wait behind those.
        streams = 2 * (len(secrets.workers) if workers is None else workers)
        self._events_http = new_http_client(
            limits=httpx.Limits(max_connections=streams + 8, max_keepalive_connections=8)
        )
        self._accounts = {name: worker.chat_user_id for name, worker in secrets.workers.items()}
        self._names = {worker.chat_user_id: name for name, worker in secrets.workers.items()}
        self._beginnings: dict[str, Beginning] = {}
        self._frames = PostedFrames()

    def feed_source(self) -> EntrySource:
        """Return a reader of the board with the workers' tokens."""
        info, workers = self._info, self._secrets.workers.values()
        return BoardReader(
            [BoardClient(info.urls.board, worker.board_token, info.board, self._board_http) for worker in workers]
        )

    async def channel_id(self) -> str:
        """Return the id of the team's task channel, as its first worker sees it."""
        first = next(iter(self._secrets.workers.values()))
        chat = MattermostClient(self._info.urls.chat, token=first.chat_token, http=self._chat_http, clock=self._clock)
        team = await chat.team_by_name(self._info.chat_team)
        channel = await chat.channel_by_name(team.id, self._info.channel)
        return channel.id

    def clients(self, worker: str, secrets: WorkerSecrets) -> WorkerClients:
        """Return the clients of one worker, with its own tokens."""
        urls = self._info.urls
        return WorkerClients(
            board=BoardClient(urls.board, secrets.board_token, self._info.board, self._board_http),
            chat=MattermostClient(
                urls.chat, token=secrets.chat_token, http=self._chat_http, clock=self._clock, known=self._accounts
            ),
            forge=GiteaClient(urls.forge, token=secrets.forge_token, http=self._forge_http, clock=self._clock),
        )

    def listeners(
        self, worker: str, secrets: WorkerSecrets, clients: WorkerClients, sink: EventSink, posts: PostFeed
    ) -> Sequence[Listener]:
        """Return the listeners of one worker; `posts` takes those of the task channel."""
        urls, clock = self._info.urls, self._clock
        pace = {"sweep_every": self._paced(SWEEP), "reconnect_longest": self._paced(RECONNECT)}
        events = GiteaEventStream(urls.forge, worker, secrets.forge_password, http=self._events_http)
        socket = MattermostSocket(urls.chat, secrets.chat_token, clock, frames=self._frames)
        return (
            GiteaListener(
                worker, clients.forge, events, sink, clock, reconnect_first=self._comeback(FORGE_COMEBACKS), **pace
            ),
            MattermostListener(
                worker,
                clients.chat,
                socket,
                sink,
                clock,
                names=self._names,
                beginnings=self._beginnings,
                reconnect_first=self._comeback(CHAT_COMEBACKS),
                posts=posts,
                **pace,
            ),
        )

    def _comeback(self, rate: float) -> float:
        """Return the seconds over which the team spreads its return to a service that cut all of it off at once."""
        return max(SHORTEST_COMEBACK, len(self._secrets.workers) / rate)

    def usage(self) -> UsageSource | None:
        """Return the gateway's client, where the run has a budget."""
        section = self._info.spec.gateway
        if section is None or not (section.budget_usd or section.worker_budget_usd):
            return None
        return GatewayClient(self._info.urls.gateway, self._secrets.gateway_admin, self._board_http)

    def _paced(self, seconds: float) -> float:
        """A rehearsal sweeps more often, within what the services can bear."""
        return max(FASTEST, seconds / self._info.spec.clock.speed)

    async def tell_workers(self, states: Sequence[WorkerState]) -> None:
        """See Backends.tell_workers."""
        admin = BoardClient(self._info.urls.board, self._secrets.board_admin, self._info.board, self._board_http)
        await admin.tell_workers(states)

    async def aclose(self) -> None:
        """Close the connection pools."""
        for http in (self._board_http, self._chat_http, self._forge_http, self._events_http):
            await http.aclose()
