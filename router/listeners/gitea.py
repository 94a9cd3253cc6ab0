"""Listens to the forge: the push channel wakes, notifications say where, threads say what.

A notification is one row per issue, whatever happened there, so it is only a hint: the row is marked read *first*,
then the issue is read. Whatever happens in between makes the row unread again. An event is named by the real id of the
comment, review or commit, so a second reading of the same thing is no second event. The cursor is the time of the
newest notification whose thread was read and committed; rows from a while before it are looked at again, read ones
included: that is what a crash between "marked read" and "committed" needs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

from agensh.clients.gitea import GiteaClient, Thread
from agensh.clients.gitea_events import ForgeSignal
from agensh.clock import Clock
from agensh.errors import ServiceError
from router.events import EventSink
from router.listeners.base import Listener, PushSource
from router.listeners.gitea_thread import ThreadState, read_thread

log = logging.getLogger(__name__)

CURSOR = "gitea:since"
OVERLAP = 60.0  # seconds; rows carry the time of writing, and become visible when their transaction commits
MOST_REMEMBERED = 5000  # threads


class GiteaListener(Listener[ForgeSignal]):
    """The forge as a source of one worker's events."""

    source_name = "gitea"

    def __init__(
        self,
        worker: str,
        client: GiteaClient,
        source: PushSource[ForgeSignal],
        sink: EventSink,
        clock: Clock,
        *,
        sweep_every: float = 120.0,
        reconnect_first: float = 1.0,
        reconnect_longest: float = 60.0,
    ) -> None:
        super().__init__(
            worker,
            source,
            sink,
            clock,
            sweep_every=sweep_every,
            reconnect_first=reconnect_first,
            reconnect_longest=reconnect_longest,
        )
        self.client = client
        self._since: float | None = None
        self._since_loaded = False
        self._done: dict[int, float] = {}
        """Thread → `updated_at` of the row at which it was read and committed."""

    def on_connect(self) -> None:
        """Every connect is followed by a sweep: the channel replays nothing."""

    def on_signal(self, signal: ForgeSignal) -> bool:
        if signal.kind == "closed":
            raise ServiceError("The forge", 0, "the session of the event stream has ended", retryable=True)
        # 0 is sent when the last row was read, which is mostly our own doing.
        return signal.kind == "notification" and signal.count > 0

    async def work(self, *, sweep: bool) -> None:
        if not self._since_loaded:
            value = await self.sink.cursor(CURSOR)
            self._since = float(value) if value else None
            self._since_loaded = True
        threads: dict[int, Thread] = {}
        if self._since is not None:
            found = await self.client.notifications(since=max(0.0, self._since - OVERLAP), all=True)
            threads.update((thread.id, thread) for thread in found)
        # A push that announces what lies before the cursor: the forge's clock was set back.
        if sweep or not any(thread.unread for thread in threads.values()):
            threads.update((thread.id, thread) for thread in await self.client.notifications())
        todo = [
            thread
            for thread in sorted(threads.values(), key=lambda item: (item.updated_at, item.id))
            if thread.unread or self._done.get(thread.id) != thread.updated_at
        ]
        # Once a row is marked read, only the cursor leads back to it: it must not be newer than any of them.
        unread = [thread.updated_at for thread in todo if thread.unread]
        if unread and (self._since is None or unread[0] < self._since):
            await self._move_cursor(unread[0])
        failure: ServiceError | None = None
        for thread in todo:
            try:
                await self._take(thread)
            except ServiceError as error:
                # One thread that cannot be read must not hold up the others; the cursor stays, so it comes again.
                failure = failure or error
        if failure is not None:
            raise failure
        newest = max((thread.updated_at for thread in threads.values()), default=None)
        if newest is not None and (self._since is None or newest > self._since):
            await self._move_cursor(newest)

    async def _move_cursor(self, since: float) -> None:
        await self.sink.put([], {CURSOR: repr(since)})
        self._since = since

    async def _take(self, thread: Thread) -> None:
        self._done.pop(thread.id, None)
        if thread.unread:
            try:
                await self.client.mark_read(thread.id)
            except ServiceError as error:
                if error.status != 404:
                    raise
        if thread.repo and thread.number:
            await self._read(thread)
        self._done[thread.id] = thread.updated_at
        if len(self._done) > MOST_REMEMBERED:
            del self._done[next(iter(self._done))]

    async def _read(self, thread: Thread) -> None:
        name = f"gitea:thread:{thread.repo}#{thread.number}"
        stored = await self.sink.cursor(name)
        state = ThreadState.of(cast("Mapping[str, Any]", json.loads(stored))) if stored else None
        try:
            events, after = await read_thread(self.client, self.worker, thread, state, self.clock.time())
        except ServiceError as error:
            if error.status != 404:
                raise
            log.info("thread is gone", extra={"worker": self.worker, "repo": thread.repo, "number": thread.number})
            return
        await self.sink.put(events, {name: json.dumps(after.to_json(), sort_keys=True)})
