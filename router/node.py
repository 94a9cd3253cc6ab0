"""The node host: one process that runs the workers of one machine.

It holds a kernel lock of its name in the run folder, so no share of the workers runs twice and a lock outlives nobody.
The run's `t0` is set in the database by the first host and kept by every other one, beside it or later, which therefore
has the same clock. Every worker is a
supervised task; what breaks in one is recorded and takes down no other. SIGTERM ends cleanly and leaves the run
`running`, to be resumed; the deadline ends it as `finished`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import uvicorn
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.applications import Starlette

from adapters.base import Adapter, Runtime
from agensh.bounded_http import BoundedProtocol
from agensh.clients.board import WorkerState
from agensh.clock import Clock, RunClock
from agensh.db import migrate, open_engine
from agensh.errors import ServiceError
from agensh.outage import Outage
from agensh.ratelimit import Rate
from agensh.rundir import NodePlace, RunDir, RunInfo, RunSecrets
from agensh.serving import keep_loaded, open_socket
from router.backends import Backends
from router.budget import BudgetWatch
from router.cursors import write_cursors
from router.dispatcher import Cooldown, Limits
from router.feed import BoardFeed
from router.leftovers import end_leftovers
from router.lock import node_lock
from router.mcp.server import create_mcp_app
from router.posts import PostFeed
from router.processes import RecordedRuntime, recorded_processes
from router.prompt import Briefing
from router.queue import RetryPolicy
from router.reporting import report_workers
from router.router import Router, Shared
from router.running import SHORTEST_WAIT, activate, running, set_state, stop_signals
from router.status import NodeStatus, status_routes
from router.tables import MIGRATIONS, VERSION_TABLE
from router.waiting import sleep_or_event, surely
from router.workspace import clone_url, launch, prepare
from router.writer import Writer, database_outage

SETTLE_EVERY = 20.0  # seconds between two looks whether workers have started: what they hold is there to stay
SAVE_EVERY = 1.0  # seconds between two saves of the desks' positions
STOP_GRACE = 20.0  # seconds a turn may take to end when it is interrupted
LISTEN_SPREAD = 0.1  # seconds between the first connections of two workers' listeners
LANES = 4  # writers of a host: a statement waits for its answer, and with 500 workers that adds up
CHAT_WAIT = 2.0  # seconds, on average, between two tries to ask a chat that is not there yet
KEEP_ALIVE = 75  # seconds an idle connection of a CLI is kept: it makes a call every 20 s or so
log = logging.getLogger(__name__)


class NodeHost:
    """Runs `workers` of one run on this machine; `run` returns at the deadline or after `stop`."""

    def __init__(
        self,
        run: RunDir,
        info: RunInfo,
        secrets: RunSecrets,
        *,
        adapter_factory: Callable[[str], type[Adapter]],
        runtime: Runtime,
        clock: Clock,
        workers: Sequence[str],
        backends: Backends,
        place: NodePlace | None = None,
        grace: float = STOP_GRACE,
        own_process: bool = False,
        bind: str = "",
    ) -> None:
        """`own_process` says that the process is there for this host alone.

        `bind` is where to listen when that is not the host of the place's URL, as in a container.
        """
        self._own_process = own_process
        self._run = run
        self._info = info
        self._secrets = secrets
        self._adapter_class = adapter_factory(info.spec.worker.harness)
        self._runtime = runtime
        self._clock = clock
        self._workers = tuple(workers)
        self._backends = backends
        self._place = place or info.places[0]
        self._grace = grace
        self._bind = bind
        self._stopping = asyncio.Event()
        self._lanes: list[Writer] = []
        """Each worker writes through one of them; SQLite has a single one, for it takes one writer at a time."""
        self.routers: dict[str, Router] = {}

    def stop(self) -> None:
        """Stop all workers and return from `run`; the run may be resumed."""
        self._stopping.set()

    async def run(self) -> None:
        """Run the workers until the deadline or `stop`. AgenshError when another host runs this run."""
        with node_lock(self._run.path, self._place.name), stop_signals(self.stop):
            url = self._run.runtime_url
            await asyncio.to_thread(migrate, url, MIGRATIONS, version_table=VERSION_TABLE)
            engine = open_engine(url)
            try:
                async with AsyncExitStack() as stack:
                    outage = database_outage(self._clock)
                    for _ in range(1 if engine.dialect.name == "sqlite" else LANES):
                        writer = await stack.enter_async_context(running(Writer(engine, self._clock, outage)))
                        self._lanes.append(writer)
                    await self._serve(self._lanes[0])
            finally:
                await self._backends.aclose()
                await engine.dispose()

    async def _serve(self, writer: Writer) -> None:
        run_clock = await activate(writer, self._info, self._clock)
        end_leftovers(self._info.run_id, self._workers, await recorded_processes(writer.engine))
        if run_clock.left(self._clock.time()) > 0 and not self._stopping.is_set():
            feed = BoardFeed(self._backends.feed_source(), self._clock)
            posts = PostFeed(writer, self._clock, await self._channel_id())
            await surely(self._clock, posts.load)
            shared = self._shared(writer, run_clock, feed, posts)
            delivery = self._info.spec.delivery
            rate = Rate(delivery.calls_per_second, delivery.calls_burst)
            app = create_mcp_app(self.routers, clock=self._clock, notice_chars=delivery.notice_chars, rate=rate)
            status = NodeStatus(self._info.run_id, run_clock, self.routers, feed, posts, self._lanes)
            app.router.routes.extend(
                status_routes(self.routers, self._secrets.node_admin, self._info.run_id, status.read, status.unpark)
            )
            async with _listening(app, self._place.url, self._bind):
                await self._work(shared)
        if run_clock.left(self._clock.time()) <= 0:
            await set_state(writer, self._info, self._clock, "finished")

    async def _work(self, shared: Shared) -> None:
        clock, run_clock = self._clock, shared.run_clock
        self._build_routers(shared)
        async with asyncio.TaskGroup() as background:
            helpers = [
                background.create_task(shared.feed.run()),
                background.create_task(self._save_positions(shared.writer)),
                background.create_task(report_workers(self._told, self._backends.tell_workers, self._clock)),
            ]
            usage = self._backends.usage()
            if usage is not None:
                queues = {name: router.queue for name, router in self.routers.items()}
                helpers.append(background.create_task(BudgetWatch(usage, queues, clock).run()))
            if self._own_process:
                helpers.append(background.create_task(self._keep_started()))
            async with asyncio.TaskGroup() as group:
                for number, name in enumerate(self._workers):
                    group.create_task(self._worker(name, number, shared))
                async with asyncio.TaskGroup() as waiting:
                    deadline = waiting.create_task(clock.sleep(run_clock.left(clock.time())))
                    asked = waiting.create_task(self._stopping.wait())
                    await asyncio.wait((deadline, asked), return_when=asyncio.FIRST_COMPLETED)
                    deadline.cancel()
                    asked.cancel()
                log.info("workers are stopped", extra={"deadline": run_clock.left(clock.time()) <= 0})
                for router in self.routers.values():
                    router.stop()
            for helper in helpers:
                helper.cancel()
        await self._save_once(shared.writer)

    def _told(self) -> list[WorkerState]:
        return [router.told() for router in self.routers.values()]

    async def _worker(self, name: str, number: int, shared: Shared) -> None:
        router = self.routers[name]
        try:
            secrets = self._secrets.workers[name]
            listeners = self._backends.listeners(name, secrets, router.clients, router.queue, shared.posts)
            await self._clock.sleep(number * LISTEN_SPREAD)
            index = shared.team.index(name)
            await router.run(shared.run_clock.start_of(index), listeners, grace=self._grace)
        except Exception as error:
            log.error("worker failed", extra={"worker": name}, exc_info=error)
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            router.fail(f"{type(cause).__name__}: {cause}")

    def _build_routers(self, shared: Shared) -> None:
        spec = self._info.spec
        goal = spec.task.goal.read_text(encoding="utf-8") if spec.task.kind == "repo" else ""
        for number, name in enumerate(self._workers):
            lane = self._lanes[number % len(self._lanes)]
            secrets = self._secrets.workers[name]
            space = prepare(self._run, self._info, name, secrets)
            runtime = RecordedRuntime(self._runtime, name, lane, self._clock)
            self.routers[name] = Router(
                name,
                replace(shared, writer=lane),
                clients=self._backends.clients(name, secrets),
                mcp_token=secrets.mcp_token,
                briefing=Briefing.of(
                    spec,
                    name,
                    clone_url=clone_url(self._info),
                    reference=self._info.reference,
                    goal=goal,
                ),
                adapter=self._adapter_class(launch(self._info, space, secrets), runtime, self._clock),
            )

    def _shared(self, writer: Writer, run_clock: RunClock, feed: BoardFeed, posts: PostFeed) -> Shared:
        spec = self._info.spec
        return Shared(
            feed=feed,
            posts=posts,
            writer=writer,
            clock=self._clock,
            run_clock=run_clock,
            cooldown=Cooldown(self._clock),
            policy=RetryPolicy(
                first=max(SHORTEST_WAIT, run_clock.scaled(5.0)),
                ceiling=max(SHORTEST_WAIT, run_clock.scaled(300.0)),
                attempts=spec.delivery.attempts,
            ),
            limits=Limits(spec.worker.failures, spec.worker.restarts, spec.delivery.context_chars),
            repository=(self._info.owner, self._info.repository),
            team=tuple(spec.worker_names),
        )

    async def _channel_id(self) -> str:
        """Ask the chat; wait for it while it does not answer, as after a restart of everything."""
        outage = Outage(log, self._clock, "the chat answers")
        while True:
            try:
                channel_id = await self._backends.channel_id()
            except ServiceError as error:
                if not error.retryable or self._stopping.is_set():
                    raise
                outage.failed("waiting for the chat", error)
                # The hosts of a run start together.
                await sleep_or_event(self._clock, CHAT_WAIT * random.uniform(0.5, 1.5), self._stopping)
            else:
                outage.worked()
                return channel_id

    async def _save_positions(self, writer: Writer) -> None:
        while True:
            await self._clock.sleep(SAVE_EVERY)
            await self._save_once(writer)

    async def _keep_started(self) -> None:
        """Keep what started workers hold out of the garbage collector's sight, some workers at a time."""
        known = -1
        while True:
            started = sum(router.listening for router in self.routers.values())
            if started != known:
                keep_loaded()
                known = started
            await self._clock.sleep(SETTLE_EVERY)

    async def _save_once(self, writer: Writer) -> None:
        unsaved = {place: value for router in self.routers.values() for place, value in router.unsaved().items()}

        async def operation(connection: AsyncConnection) -> None:
            await write_cursors(connection, unsaved)

        if unsaved:
            writer.record(operation)


async def run_node(
    run: RunDir,
    *,
    adapter_factory: Callable[[str], type[Adapter]],
    runtime: Runtime,
    clock: Clock,
    backends: Backends,
    place: NodePlace | None = None,
    own_process: bool = False,
    bind: str = "",
) -> None:
    """Run the share of `run`'s workers that belongs to `place` (the first by default) on this machine.

    `own_process` says that the process is there for this host alone. Returns at the deadline, on SIGTERM or on SIGINT.
    """
    info, secrets = run.info(), run.secrets()
    place = place or info.places[0]
    host = NodeHost(
        run,
        info,
        secrets,
        adapter_factory=adapter_factory,
        runtime=runtime,
        clock=clock,
        workers=info.workers_of(place),
        backends=backends,
        place=place,
        own_process=own_process,
        bind=bind,
    )
    await host.run()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the node host has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _listening(app: Starlette, url: str, bind: str) -> AsyncIterator[None]:
    parts = urlsplit(url)
    host, port = bind or parts.hostname or "127.0.0.1", parts.port or 80
    bound = open_socket(host, port, "node host")
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        lifespan="on",
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        bound.close()
