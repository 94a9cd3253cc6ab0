"""The timers of one worker, as control events through its queue.

Every reminder has a dedupe key (`wind_down`, `last_call`, `idle:<turn>`, `publish_reminder:<turn>`), so that a host
that is restarted repeats none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from agensh.clock import Clock, RunClock
from prompts import render
from router.events import Kind, NewEvent, Priority, Source
from router.prompt import duration
from router.queue import Depth
from router.waiting import sleep_or_event, surely

_SUMMARIES: Mapping[Kind, str] = {
    Kind.START: "you have started",
    Kind.RESUMED: "the harness was restarted",
    Kind.IDLE: "nothing has happened here for a while",
    Kind.PUBLISH_REMINDER: "your last turn ended without an entry on the board",
    Kind.WIND_DOWN: "the end of the run is near",
    Kind.LAST_CALL: "the run ends very soon",
    Kind.BUDGET_80: "most of the budget is spent",
    Kind.BUDGET_95: "almost all of the budget is spent",
}


def control_event(kind: Kind, dedupe_key: str, now: float, **body: object) -> NewEvent:
    """Return a control event; its text is a template of `prompts/`."""
    return NewEvent(
        source=Source.CONTROL,
        kind=kind,
        dedupe_key=f"control:{dedupe_key}",
        summary=_SUMMARIES[kind],
        observed_at=now,
        priority=Priority.CONTROL,
        body=body,
    )


class ControlQueue(Protocol):
    """What the timers need of the worker's queue."""

    async def put(self, new: Sequence[NewEvent]) -> int:
        """Queue what is not known yet."""
        ...

    async def depth(self) -> Depth:
        """Return how much waits."""
        ...


class Timers:
    """Puts the reminders of one worker into its queue when they are due; `run` ends after the last one."""

    def __init__(self, queue: ControlQueue, run_clock: RunClock, clock: Clock, *, alone: bool) -> None:
        self._queue = queue
        self._run_clock = run_clock
        self._clock = clock
        self._alone = alone
        self._idle_since: float | None = None
        self._idle_key = 0
        self._changed = asyncio.Event()

    def turn_started(self) -> None:
        """The worker is busy."""
        self._idle_since = None
        self._changed.set()

    def now_idle(self, last_turn: int) -> None:
        """The worker waits since now; `last_turn` names the time of idleness, so that it has one prompt."""
        self._idle_since = self._clock.time()
        self._idle_key = last_turn
        self._changed.set()

    async def turn_completed(self, turn_id: int, kinds: frozenset[Kind], *, published: bool) -> None:
        """A turn ended well; one that published nothing earns the reminder, once, and not for answering a reminder."""
        now = self._clock.time()
        if self._alone:
            # A single worker has nobody who wakes it: it goes on after every stop until the end of the run.
            if now < self._run_clock.last_call_at:
                event = control_event(Kind.IDLE, f"continue:{turn_id}", now, template="continue_single.md")
                await self._put(event)
        elif not published and Kind.PUBLISH_REMINDER not in kinds and Kind.LAST_CALL not in kinds:
            await self._put(control_event(Kind.PUBLISH_REMINDER, f"publish_reminder:{turn_id}", now))

    async def run(self) -> None:
        """Wait for the times and put the reminders; ends at the deadline."""
        async with asyncio.TaskGroup() as group:
            idle = group.create_task(self._watch_idleness())
            group.create_task(self._remind())
            await self._clock.sleep(self._run_clock.left(self._clock.time()))
            idle.cancel()

    async def _remind(self) -> None:
        clock = self._run_clock
        for kind, due, until in (
            (Kind.WIND_DOWN, clock.wind_down_at, clock.last_call_at),
            (Kind.LAST_CALL, clock.last_call_at, clock.deadline),
        ):
            await self._clock.sleep(due - self._clock.time())
            # A host that was away until the next reminder was due leaves this one out.
            if self._clock.time() < max(until, due + 0.001):
                now = self._clock.time()
                # The text of a notice: a running turn hears of it with its next tool result.
                text = render(f"{kind}_notice.md", left=duration(clock.left(now))).strip()
                await self._put(control_event(kind, str(kind), now, text=text))

    async def _watch_idleness(self) -> None:
        while True:
            self._changed.clear()
            since = self._idle_since
            if since is None:
                await self._changed.wait()
                continue
            left = since + self._run_clock.idle_after - self._clock.time()
            if left > 0:
                await sleep_or_event(self._clock, left, self._changed)
            elif self._clock.time() >= self._run_clock.last_call_at:
                return
            else:
                await self._prompt_idle()

    async def _prompt_idle(self) -> None:
        key = f"idle:{self._idle_key}"
        self._idle_since = None
        depth = await surely(self._clock, self._queue.depth)
        if self._changed.is_set():
            return  # a turn has begun meanwhile
        if depth.waiting:
            # What failed waits for its next try; an idle prompt now would only go round that wait.
            self.now_idle(self._idle_key)
            return
        await self._put(control_event(Kind.IDLE, key, self._clock.time()))

    async def _put(self, event: NewEvent) -> None:
        await surely(self._clock, lambda: self._queue.put([event]))
