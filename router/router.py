"""One worker of a node: its queue, desk, listeners, timers and dispatcher, and what the MCP endpoint sees of it."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adapters.base import Adapter
from agensh.clients.board import BoardClient, WorkerState
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import Clock, RunClock
from agensh.db import DatabaseUnavailable
from agensh.text import storable
from router.backends import Listener, WorkerClients
from router.desk import CURSOR, Desk
from router.dispatcher import Cooldown, Dispatcher, Limits, State
from router.feed import BoardFeed
from router.idle import Timers
from router.ports import ToolCall
from router.posts import CURSOR as POSTS_CURSOR
from router.posts import PostFeed
from router.prompt import Briefing
from router.queue import Depth, EventQueue, RetryPolicy
from router.record import Recorder
from router.waiting import sleep_or_event, surely
from router.writer import Writer

LISTENER_CEILING = 60.0  # seconds between two starts of a listener that fails
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the routers of one node have in common."""

    feed: BoardFeed
    posts: PostFeed
    writer: Writer
    clock: Clock
    run_clock: RunClock
    cooldown: Cooldown
    policy: RetryPolicy
    limits: Limits
    repository: tuple[str, str]
    team: tuple[str, ...]


class Router:
    """Implements `WorkerPort`. `run` serves the worker until `stop`."""

    def __init__(
        self, name: str, shared: Shared, *, clients: WorkerClients, mcp_token: str, briefing: Briefing, adapter: Adapter
    ) -> None:
        self._name = name
        self._shared = shared
        self.clients = clients
        self._mcp_token = mcp_token
        self._stopping = asyncio.Event()
        self._waiting = True
        self._failure = ""
        self._listeners: Sequence[Listener] = ()
        self.queue = EventQueue(
            name, shared.writer, shared.clock, shared.policy, on_new=self._on_new, posts=shared.posts
        )
        self._desk = Desk(name, shared.feed, self.queue, shared.writer, shared.clock)
        self._recorder = Recorder(name, shared.writer, shared.clock)
        self._timers = Timers(self.queue, shared.run_clock, shared.clock, alone=len(shared.team) == 1)
        self.dispatcher = Dispatcher(
            name,
            adapter,
            queue=self.queue,
            desk=self._desk,
            feed=shared.feed,
            timers=self._timers,
            recorder=self._recorder,
            briefing=briefing,
            run_clock=shared.run_clock,
            clock=shared.clock,
            limits=shared.limits,
            cooldown=shared.cooldown,
        )

    # WorkerPort

    @property
    def name(self) -> str:
        """Full handle."""
        return self._name

    @property
    def board(self) -> BoardClient:
        """Board client with the worker's own token."""
        return self.clients.board

    @property
    def chat(self) -> MattermostClient:
        """Chat client with the worker's own token."""
        return self.clients.chat

    @property
    def forge(self) -> GiteaClient:
        """Forge client with the worker's own token."""
        return self.clients.forge

    @property
    def desk(self) -> Desk:
        """Its pending notices."""
        return self._desk

    @property
    def peers(self) -> tuple[str, ...]:
        """Full handles of the other workers of the team."""
        return tuple(name for name in self._shared.team if name != self._name)

    @property
    def repository(self) -> tuple[str, str]:
        """Owner and name of the team's repository."""
        return self._shared.repository

    @property
    def channel_id(self) -> str:
        """Id of the team's task channel."""
        return self._shared.posts.channel_id

    def authorises(self, token: str) -> bool:
        """Say whether `token` is this worker's MCP token (compared in constant time)."""
        return hmac.compare_digest(token.encode(), self._mcp_token.encode())

    def record(self, call: ToolCall) -> None:
        """Record a finished tool call, and take from it what it says about the worker."""
        dispatcher = self.dispatcher
        busy = dispatcher.state is State.BUSY
        self._recorder.call(dispatcher.turn_id if busy else None, call)
        if not call.ok:
            return
        arguments = _arguments(call)
        if call.tool == "board_write":
            dispatcher.published = True
        elif call.tool == "board_release":
            label = str(arguments.get("label", "")).lstrip("Gg")
            if label.isdecimal():
                self._shared.feed.release(int(label))

    # Life

    @property
    def state(self) -> State:
        """What the worker does now."""
        if self._failure:
            return State.PARKED
        return State.WAITING if self._waiting else self.dispatcher.state

    @property
    def listening(self) -> bool:
        """Whether all its sources are heard."""
        return bool(self._listeners) and all(listener.live.is_set() for listener in self._listeners)

    @property
    def reason(self) -> str:
        """Why it is parked; empty when it is not."""
        return self._failure or self.dispatcher.session.parked_reason

    async def run(self, start_at: float, listeners: Sequence[Listener], *, grace: float) -> None:
        """Listen at once, work from `start_at` on, end within about `grace` seconds of `stop`.

        The listeners do not wait for the start: what reaches a worker before it is kept for its first turn.
        """
        clock = self._shared.clock
        self._listeners = listeners
        await surely(clock, self.queue.recover)
        position = await surely(clock, lambda: self.queue.cursor(CURSOR))
        self._desk.restore(position, await surely(clock, self.queue.waiting_posts))
        told = await surely(clock, lambda: self.queue.cursor(POSTS_CURSOR))
        if self.queue.posts is not None:
            self.queue.posts.restore(told)
        try:
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(self._supervise(listener)) for listener in listeners]
                await sleep_or_event(clock, start_at - clock.time(), self._stopping)
                if not self._stopping.is_set():
                    self._waiting = False
                    background.append(group.create_task(self._timers.run()))
                    work = group.create_task(self.dispatcher.run())
                    await self._stopping.wait()
                    await self.dispatcher.stop(grace)
                    work.cancel()
                for task in background:
                    task.cancel()
        finally:
            # However it ends, cancelled or broken: no CLI goes on without its router.
            await self.dispatcher.close()
        self.dispatcher.state, self._waiting = State.STOPPED, False
        try:
            # What a turn left in flight that did not end in time.
            await self.queue.recover()
        except DatabaseUnavailable as error:
            log.warning("the next host recovers the queue", extra={"worker": self._name, "error": str(error)})

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()

    def unsaved(self) -> dict[tuple[str, str], str]:
        """Return the positions that moved since they were saved, by worker and source; the caller saves them."""
        posts = self.queue.posts
        values = {CURSOR: self._desk.unsaved(), POSTS_CURSOR: posts.unsaved() if posts is not None else None}
        return {(self._name, source): value for source, value in values.items() if value is not None}

    def fail(self, reason: str) -> None:
        """The worker's tasks broke; it is shown as parked with the reason."""
        self._failure = storable(reason)

    def unpark(self) -> bool:
        """Let the worker go on when it is parked; say whether it was. One whose tasks broke needs a new host."""
        return not self._failure and self.dispatcher.unpark()

    def told(self) -> WorkerState:
        """Return what the board is told of the worker."""
        return WorkerState(self._name, str(self.state), self.reason)

    def status(self, depth: Depth) -> dict[str, Any]:
        """Return what the node's status shows of the worker; `depth` is that of its queue's rows."""
        depth = self.queue.with_posts(depth)
        unseen = [time for time in (self._desk.oldest_unseen(), depth.oldest_at) if time is not None]
        return {
            "worker": self._name,
            "state": str(self.state),
            "reason": self.reason,
            "session": self.dispatcher.session.session_id,
            "turns": self.dispatcher.turns,
            "live": self.listening,
            "queued": depth.waiting,
            "oldest_unseen_at": min(unseen, default=None),
        }

    def _on_new(self, events: Sequence[Any]) -> None:
        self._desk.expect(events)

    async def _supervise(self, listener: Listener) -> None:
        """Start a listener again when it fails; its source's cursor is committed, so it misses nothing."""
        failures = 0
        while True:
            began = self._shared.clock.monotonic()
            try:
                await listener.run()
                return
            except Exception as error:
                log.error("listener failed", extra={"worker": self._name, "listener": repr(listener)}, exc_info=error)
            failures = 0 if self._shared.clock.monotonic() - began > LISTENER_CEILING else failures + 1
            await self._shared.clock.sleep(random.uniform(0.1, min(LISTENER_CEILING, 0.5 * 2 ** min(failures, 10))))


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments)
    except ValueError:  # cut to its cap
        return {}
    return value if isinstance(value, dict) else {}
