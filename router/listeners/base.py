"""What listeners share: one loop that keeps the push channel open, one that does the work.

The push loop only wakes the work loop and never waits for it, so a slow database or a long catch-up cannot make a
server cut the connection. The work loop also runs at an interval without any push: push channels lose events, and they
may be down while the rest of the service answers. Both go on for ever, with full jitter, until they are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from agensh.clients.http import backoff
from agensh.clock import Clock
from agensh.db import DatabaseUnavailable
from agensh.errors import AgenshError, ServiceError
from router.events import EventSink
from router.waiting import sleep_or_event

log = logging.getLogger(__name__)

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

RECHECK_AFTER = 5.0  # seconds after a (re)connect: what was being committed while we caught up is visible then
STABLE_AFTER = 10.0  # seconds a connection must live before the next reconnect starts from the shortest wait
REFUSED_WAIT = 30.0  # seconds, at least, after 401 or 403
LONGEST_WISH = 300.0  # seconds; a source that asks for a longer wait is looked at again after that
_FAILURES = (AgenshError, LookupError, ValueError, TypeError)
"""What one round may fail with: a service or database that does not answer, or an answer that is not what the protocol
says. Everything else is a mistake of ours and ends the listener."""


class PushSource(Protocol[S_co]):
    """A push channel of a service: server-sent events, a websocket, or a poller that behaves like one."""

    async def connect(self) -> None:
        """Open the channel (again); ServiceError when it cannot be."""
        ...

    async def disconnect(self) -> None:
        """Close it; safe to call when it is closed."""
        ...

    def signals(self) -> AsyncGenerator[S_co, None]:
        """Yield what is pushed; ServiceError when the channel is cut."""
        ...


class Listener(ABC, Generic[S]):
    """Turns one source of one worker into events; at least once, and the sink drops repetitions."""

    source_name: str

    def __init__(
        self,
        worker: str,
        source: PushSource[S],
        sink: EventSink,
        clock: Clock,
        *,
        sweep_every: float,
        reconnect_first: float = 1.0,
        reconnect_longest: float = 60.0,
    ) -> None:
        """`sweep_every` (seconds) bounds how late an event may be that no push announced.

        `reconnect_first` (seconds) is the longest first wait before a reconnect: the more workers, the longer, or they
        all come back at once.
        """
        self.worker = worker
        self.source = source
        self.sink = sink
        self.clock = clock
        self.sweep_every = sweep_every
        self.reconnect_first = reconnect_first
        self.reconnect_longest = reconnect_longest
        self.live = asyncio.Event()
        """Set while the push channel is open and everything up to its opening was read."""
        self.last_error = ""
        """Why the last round failed; empty after one that did not."""
        self._wake = asyncio.Event()
        self._connected = False
        self._said = ""
        """The failure of the push channel that was logged last, while it lasts."""
        self.cuts = 0
        """Connections in a row that ended or did not come about."""
        self._next_sweep = 0.0

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._push_loop(), name=f"{self.source_name} push {self.worker}")
                group.create_task(self._work_loop(), name=f"{self.source_name} work {self.worker}")
        finally:
            self.live.clear()
            await self.source.disconnect()

    @abstractmethod
    def on_connect(self) -> None:
        """The channel was opened (again). Must not block."""

    @abstractmethod
    def on_signal(self, signal: S) -> bool:
        """Take one signal; return whether there is work to do. Must not block. ServiceError ends the connection."""

    @abstractmethod
    async def work(self, *, sweep: bool) -> None:
        """Read what is new and put it into the sink; with `sweep`, also what no push announced."""

    def sweep_soon(self, seconds: float) -> None:
        """Make the next sweep due in that many seconds at the latest."""
        self._sweep_within(seconds)
        self._wake.set()

    def _sweep_within(self, seconds: float) -> None:
        # The work loop itself needs no waking: a round for nothing costs a request a worker.
        self._next_sweep = min(self._next_sweep, self.clock.monotonic() + seconds)

    async def _push_loop(self) -> None:
        attempt = 0
        while True:
            opened = self.clock.monotonic()
            least = 0.0
            try:
                await self.source.connect()
                self._connected = True
                self.on_connect()
                self.sweep_soon(0.0)
                async with aclosing(self.source.signals()) as signals:
                    async for signal in signals:
                        if self.on_signal(signal):
                            self._wake.set()
            except ServiceError as error:
                least = _asked(error)
                refused = error.status in {401, 403}
                if refused:
                    # Of a source that is quick in a test, a refusal is as well.
                    least = max(least, min(1.0, self.reconnect_first) * REFUSED_WAIT)
                if str(error) != self._said:  # one line a reason, however long it lasts
                    self._said = str(error)
                    level = logging.ERROR if refused else logging.INFO
                    log.log(level, "push refused" if refused else "push cut", extra=self._extra(self._said))
                self.cuts += 1
            except _FAILURES as error:
                log.exception("push failed", extra=self._extra(str(error)))
                self.cuts += 1
            finally:
                self._connected = False
                self.live.clear()
            await self.source.disconnect()
            if self.clock.monotonic() - opened >= STABLE_AFTER:
                attempt = 0
            wait = backoff(attempt, first=self.reconnect_first, longest=self.reconnect_longest)
            await self.clock.sleep(least + wait)
            attempt += 1

    async def _work_loop(self) -> None:
        attempt = 0
        while True:
            await sleep_or_event(self.clock, self._next_sweep - self.clock.monotonic(), self._wake)
            self._wake.clear()
            connected = self._connected
            sweep = self.clock.monotonic() >= self._next_sweep
            if sweep:
                self._next_sweep = self.clock.monotonic() + self.sweep_every * random.uniform(0.9, 1.1)
            try:
                await self.work(sweep=sweep)
            except _FAILURES as error:
                if str(error) != self.last_error:
                    self.last_error = str(error)
                    trace = not isinstance(error, AgenshError)
                    level = logging.ERROR if trace else logging.WARNING
                    if isinstance(error, DatabaseUnavailable):  # the writer tells of it, once for all
                        level = logging.DEBUG
                    log.log(level, "round failed", extra=self._extra(self.last_error), exc_info=trace)
                await self.clock.sleep(_asked(error) + backoff(attempt, longest=self.reconnect_longest))
                attempt += 1
                self._sweep_within(0.0)
                continue
            if attempt:
                log.info("round succeeded again", extra=self._extra() | {"failures": attempt})
            attempt = 0
            self.last_error = ""
            if connected and self._connected and sweep and not self.live.is_set():
                self.live.set()
                self._sweep_within(RECHECK_AFTER)
                if self._said:
                    # Not before: a chat takes the connection of a revoked token, and refuses it after that.
                    log.info("push is open again", extra=self._extra() | {"failures": self.cuts})
                self._said, self.cuts = "", 0

    def _extra(self, error: str = "") -> dict[str, object]:
        extra: dict[str, object] = {"source": self.source_name, "worker": self.worker}
        return extra | {"error": error} if error else extra


def _asked(error: BaseException) -> float:
    """Return the seconds that a service asked to wait, as far as we follow."""
    wish = error.retry_after if isinstance(error, ServiceError) else None
    return min(wish or 0.0, LONGEST_WISH)
