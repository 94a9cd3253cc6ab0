"""One turn at a time: takes events from the queue, prompts the CLI, records what happens, settles the events.

How a turn ends decides about its events and the session: `adapters.base.Outcome` lists the outcomes and the rule of
each, `_settle` carries the rules out. After `Limits.failures` failed turns in a row a fresh session replaces this one,
after `Limits.restarts` of those the worker is parked with the reason; the team goes on. `unpark` lets it try again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from enum import StrEnum

from adapters.base import Adapter, HarnessUnavailable, Outcome, Rule, SessionLost, TurnEnd
from agensh.clock import Clock, RunClock
from agensh.db import DatabaseUnavailable
from agensh.text import storable
from router.claim import Claim
from router.desk import Desk
from router.driver import Driver, Parked
from router.events import Kind
from router.feed import BoardFeed
from router.idle import Timers, control_event
from router.prompt import Briefing, entry_line, turn_prompt
from router.queue import EventQueue
from router.record import Recorder
from router.turn import drive, start
from router.waiting import DATABASE_WAIT

log = logging.getLogger(__name__)


class State(StrEnum):
    """What a worker does."""

    WAITING = "waiting"
    """Its time to start has not come."""
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    PARKED = "parked"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a session is given up, and when a worker is."""

    failures: int = 3
    """Failed turns in a row before a fresh session."""
    restarts: int = 3
    """Fresh sessions in a row without a completed turn before the worker is parked."""
    context_chars: int = 12_000


class Cooldown:
    """A provider's request to wait, shared by the workers of a node: one account serves them all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Nobody starts a turn for that long."""
        self._until = max(self._until, self._clock.time() + seconds)

    async def wait(self) -> None:
        """Return when turns may start."""
        while (left := self._until - self._clock.time()) > 0:
            await self._clock.sleep(left)


class Dispatcher(Driver):
    """Drives one worker's adapter; `run` ends when the worker is stopped."""

    def __init__(
        self,
        worker: str,
        adapter: Adapter,
        *,
        queue: EventQueue,
        desk: Desk,
        feed: BoardFeed,
        timers: Timers,
        recorder: Recorder,
        briefing: Briefing,
        run_clock: RunClock,
        clock: Clock,
        limits: Limits,
        cooldown: Cooldown,
    ) -> None:
        super().__init__(recorder, clock)
        self.worker = worker
        self.state = State.STARTING
        self.turns = 0
        self.turn_id = 0
        """The worker's newest turn; 0 before the first."""
        self.published = False
        """The running turn wrote an entry."""
        self._adapter = adapter
        self._queue = queue
        self._desk = desk
        self._feed = feed
        self._timers = timers
        self._briefing = briefing
        self._run_clock = run_clock
        self._limits = limits
        self._cooldown = cooldown
        self._leave_park = asyncio.Event()
        self._limited = 0

    async def run(self) -> None:
        """Start or resume the CLI and deliver events until `stop`."""
        self.session = await self._surely(self._recorder.load_session)
        self.turn_id = await self._surely(self._recorder.last_turn)
        while not self._stopping.is_set():
            # A person who starts the host again, or calls `unpark`, has seen to what parked the worker.
            self.session = replace(self.session, failures=0, restarts=0, parked_reason="", parked_at=None)
            try:
                await self._open(resume=True)
                while not self._stopping.is_set():
                    await self._next_turn()
            except (Parked, HarnessUnavailable) as error:
                await self._park(storable(str(error)))

    def unpark(self) -> bool:
        """Let a parked worker go on in its session; say whether it was parked."""
        if self.state is not State.PARKED:
            return False
        self._leave_park.set()
        return True

    async def stop(self, grace: float) -> None:
        """End the running turn within `grace` seconds and then the CLI; take no further events."""
        self._stopping.set()
        self._leave_park.set()
        if not self._resting.is_set():
            try:
                async with asyncio.timeout(grace):
                    await self._adapter.interrupt()
                    await self._resting.wait()
            except TimeoutError:
                log.warning("turn did not end in time", extra={"worker": self.worker, "grace": grace})
        await self._adapter.stop()
        if not self._resting.is_set():
            # The CLI is gone now, so what is left of the turn is only its book-keeping.
            try:
                await asyncio.wait_for(self._resting.wait(), grace)
            except TimeoutError:
                log.error("turn could not be settled", extra={"worker": self.worker})

    async def close(self) -> None:
        """End the CLI, whatever state the worker is in; safe to call twice."""
        await self._adapter.stop()

    async def _next_turn(self) -> None:
        self.state = State.IDLE
        self._timers.now_idle(self.turn_id)
        try:
            await self._queue.wait()
            await self._cooldown.wait()
            claim = await self._queue.claim(self.session.session_id)
        except DatabaseUnavailable as error:
            log.debug("queue cannot be read", extra={"worker": self.worker, "error": str(error)})
            await self._clock.sleep(DATABASE_WAIT)
            return
        if claim is None:
            return
        self._resting.clear()
        try:
            end = await self._turn(claim)
            await self._settle(claim, end)
        finally:
            self._resting.set()

    async def _turn(self, claim: Claim) -> TurnEnd:
        self.state, self.turn_id, self.published = State.BUSY, claim.turn_id, False
        self.turns += 1
        self._timers.turn_started()
        now = self._clock.time()
        heard = self._feed.head
        events = self._desk.untold(claim.events)
        context = self._desk.open_turn(
            claim.turn_id,
            events,
            room=self._limits.context_chars,
            length=lambda entry: len(entry_line(entry, now)) + 1,
        )
        prompt = turn_prompt(
            self._briefing,
            events,
            context,
            first=not self.session.primed,
            now=now,
            left=self._run_clock.left(now),
            posts_left=claim.posts_left,
        )
        self._recorder.prompted(claim.turn_id, prompt, len(context.entries))
        log.info("turn starts", extra={"worker": self.worker, "turn": claim.turn_id, "events": len(claim.events)})
        texts: list[str] = []
        end = await drive(self._adapter, self._recorder, prompt, claim.turn_id, texts, self._heard)
        if end.outcome is Outcome.CRASHED and self._stopping.is_set():
            # The CLI was ended by the stop itself, perhaps before it had read the prompt.
            end = replace(end, outcome=Outcome.INTERRUPTED, reason="The worker was stopped.")
        self.published = self.published or any(entry.worker == self.worker for entry in self._feed.after(heard))
        self._recorder.ended(claim.turn_id, end, "\n".join(texts))
        log.info(
            "turn ended",
            extra={"worker": self.worker, "turn": claim.turn_id, "outcome": str(end.outcome), "reason": end.reason},
        )
        return end

    async def _settle(self, claim: Claim, end: TurnEnd) -> None:
        ids = [event.id for event in claim.events]
        reason = end.reason or f"The turn ended as {end.outcome}."
        completed = end.outcome is Outcome.COMPLETED
        self._desk.close_turn(delivered=completed)
        if completed:
            await self._surely(lambda: self._queue.ack(ids))
            self._limited = 0
            await self._save(replace(self.session, primed=True, failures=0, restarts=0))
            if not self._stopping.is_set():
                kinds = frozenset(event.kind for event in claim.events)
                published = self.published
                await self._timers.turn_completed(claim.turn_id, kinds, published=published)
            return
        if self._stopping.is_set():
            await self._surely(lambda: self._queue.put_back(ids, reason=reason))
            await self._save(self.session)
            return
        match end.outcome.rule:
            case Rule.WAIT:
                await self._wait_for_provider(ids, end, reason)
            case Rule.PARK:
                await self._surely(lambda: self._queue.put_back(ids, reason=reason))
                raise Parked(f"{end.outcome}: {reason}")
            case Rule.FRESH:
                await self._surely(lambda: self._queue.put_back(ids, reason=reason))
                await self._start_anew(reason)
            case _:
                await self._surely(lambda: self._queue.fail(ids, reason))
                await self._after_failure(end.outcome.rule, reason)
        self._desk.expect(await self._surely(self._queue.waiting_posts))

    async def _wait_for_provider(self, ids: list[int], end: TurnEnd, reason: str) -> None:
        self._limited += 1
        wait = end.retry_after if end.retry_after is not None else self._queue.policy.wait(self._limited)
        if end.retry_after is not None:
            self._cooldown.extend(end.retry_after)
        await self._surely(lambda: self._queue.put_back(ids, wait=wait, reason=reason))
        await self._save(self.session)
        await self._pause(wait)

    async def _after_failure(self, rule: Rule, reason: str) -> None:
        failures = self.session.failures + 1
        await self._save(replace(self.session, failures=failures))
        if failures >= self._limits.failures:
            await self._start_anew(reason)
            return
        if rule is Rule.RESUME:
            await self._adapter.stop()
            await self._open(resume=True)
        await self._pause(self._queue.policy.wait(failures))

    async def _start_anew(self, reason: str) -> None:
        restarts = self.session.restarts + 1
        await self._save(replace(self.session, failures=0, restarts=restarts))
        if restarts > self._limits.restarts:
            raise Parked(f"{self._limits.restarts} fresh sessions in a row did not help. The last reason: {reason}")
        log.warning("session is given up", extra={"worker": self.worker, "reason": reason, "restarts": restarts})
        await self._adapter.stop()
        await self._open(resume=False)
        await self._pause(self._queue.policy.wait(restarts))

    async def _open(self, *, resume: bool) -> None:
        """Start the CLI: in the known session where that is asked and works, in a fresh one otherwise."""
        self.state = State.STARTING
        known = self.session
        if resume and known.session_id:
            try:
                session_id = await self._start(known.session_id)
            except SessionLost as error:
                log.warning("session is lost", extra={"worker": self.worker, "error": str(error)})
                await self._adapter.stop()
            else:
                await self._save(replace(known, session_id=session_id))
                await self._tell_resumed(fresh=False)
                return
        session_id = await self._start(None)
        number = known.number + 1
        await self._save(
            replace(known, session_id=session_id, number=number, primed=False, started_at=self._clock.time())
        )
        if known.number:
            await self._tell_resumed(fresh=True)
        else:
            now = self._clock.time()
            await self._surely(lambda: self._queue.put([control_event(Kind.START, "start", now)]))

    async def _start(self, session_id: str | None) -> str:
        """Start the CLI; one that cannot run gets as many tries as a worker has fresh sessions."""

        async def rest(failures: int) -> None:
            await self._pause(self._queue.policy.wait(failures))
            self.state = State.STARTING

        return await start(self._adapter, session_id, self._limits.restarts, rest)

    async def _tell_resumed(self, *, fresh: bool) -> None:
        # One event for one interruption: a host that is killed again before the next turn repeats none.
        now = self._clock.time()
        key = f"resumed:{self.session.number}:{self.turn_id}"
        event = control_event(Kind.RESUMED, key, now, fresh=fresh)
        await self._surely(lambda: self._queue.put([event]))

    async def _park(self, reason: str) -> None:
        self.state = State.PARKED
        log.error("worker is parked", extra={"worker": self.worker, "reason": reason})
        await self._save(replace(self.session, parked_reason=reason, parked_at=self._clock.time()))
        await self._adapter.stop()
        await self._leave_park.wait()
        if not self._stopping.is_set():
            self._leave_park.clear()

    async def _pause(self, seconds: float) -> None:
        self.state = State.IDLE
        await super()._pause(seconds)
