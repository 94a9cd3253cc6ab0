"""One worker with nothing around it: prompted again after every stop until the deadline.

How a turn ends decides what follows by the rule of its outcome (`adapters.base.Outcome`), as in a team; a worker that
would be parked there ends its run here, for nobody else goes on. Reminders come with the prompt of the next turn, since
a running one cannot be told. After a turn that began with the last call there is no other.

What a killed process was doing is cut off; its successor resumes the session and goes on, on the same clock.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.base import Adapter, HarnessUnavailable, Outcome, Rule, SessionLost, TurnEnd
from agensh.clock import Clock, RunClock
from agensh.errors import ServiceError
from agensh.spec import TeamSpec
from agensh.text import storable
from prompts import render
from router.budget import WARNINGS, Spent, UsageSource
from router.dispatcher import Limits
from router.driver import Driver, Parked
from router.prompt import duration
from router.queue import RetryPolicy, new_turn
from router.record import Recorder
from router.tables import turns
from router.turn import drive, start
from router.writer import Writer

STOP_GRACE = 20.0  # seconds a turn may take to end when it is interrupted
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """What the prompts say about the task."""

    worker: str
    kind: str
    goal: str
    reference: str
    acceptance: str
    clone_url: str
    budget: str

    @classmethod
    def of(cls, spec: TeamSpec, worker: str, *, clone_url: str, reference: str) -> Task:
        """Take it from the spec (blocking: it reads the goal); the budget as it passes in this run."""
        return cls(
            worker=worker,
            kind=spec.task.kind,
            goal=spec.task.goal.read_text(encoding="utf-8").strip(),
            reference=reference,
            acceptance=spec.task.acceptance or "",
            clone_url=clone_url,
            budget=duration(spec.clock.budget / spec.clock.speed),
        )

    def first_prompt(self) -> str:
        """Return the text that begins every session."""
        return render(
            "baseline.md",
            worker=self.worker,
            kind=self.kind,
            goal=self.goal,
            reference=self.reference,
            acceptance=self.acceptance,
            clone_url=self.clone_url,
            budget=self.budget,
        )


class LoneWorker(Driver):
    """Drives one adapter; `run` returns at the deadline, after `stop`, or when the worker cannot go on."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        task: Task,
        writer: Writer,
        run_clock: RunClock,
        clock: Clock,
        policy: RetryPolicy,
        usage: UsageSource | None = None,
        limits: Limits | None = None,
        grace: float = STOP_GRACE,
    ) -> None:
        super().__init__(Recorder(task.worker, writer, clock), clock)
        self.parked: Outcome | None = None
        """The outcome that ended the worker; None while it can go on."""
        self._adapter = adapter
        self._task = task
        self._writer = writer
        self._run_clock = run_clock
        self._policy = policy
        self._usage = usage
        self._limits = limits or Limits()
        self._grace = grace
        self._heard_at = 0.0
        """When the newest turn that completed began: what was due by then was told."""
        self._resumed = ""
        """What the next prompt says of an interruption: nothing, `same` session or `fresh` one."""
        self._warned = 0.0
        """The share of the budget that the worker was warned of."""
        self._limited = 0

    def stop(self) -> None:
        """End the running turn and return from `run`; the run may be resumed."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until the deadline. What breaks in the worker is recorded as the reason why it was parked."""
        work = asyncio.create_task(self._work())
        deadline = asyncio.create_task(self._clock.sleep(self._run_clock.left(self._clock.time())))
        asked = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((work, deadline, asked), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await self._end_turn()
        finally:
            for each in (work, deadline, asked):
                each.cancel()
            await self._adapter.stop()
            (ended, *_) = await asyncio.gather(work, deadline, asked, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _end_turn(self) -> None:
        self._stopping.set()
        if self._resting.is_set():
            return
        try:
            async with asyncio.timeout(self._grace):
                await self._adapter.interrupt()
                await self._resting.wait()
        except TimeoutError:
            log.warning("turn did not end in time", extra={"worker": self._task.worker, "grace": self._grace})
            await self._adapter.stop()
            # The CLI is gone now, so what is left of the turn is only its book-keeping.
            try:
                await asyncio.wait_for(self._resting.wait(), self._grace)
            except TimeoutError:
                log.error("turn could not be settled", extra={"worker": self._task.worker})

    async def _work(self) -> None:
        try:
            former = await self._surely(self._recorder.load_session)
            self._heard_at = await self._surely(self._last_heard)
            # A person who starts the run again has seen to what parked the worker.
            self.session = replace(former, failures=0, restarts=0, parked_reason="", parked_at=None)
            await self._open(resume=True)
            while not self._stopping.is_set() and self._heard_at < self._run_clock.last_call_at:
                await self._next_turn()
            # The last call was answered. What is left is too short for anything but harm.
            await self._stopping.wait()
        except (Parked, HarnessUnavailable) as error:
            if self.parked is None:
                self.parked = Outcome.CRASHED
            log.error("worker is parked", extra={"worker": self._task.worker, "reason": str(error)})
            reason = storable(str(error))
            await self._save(replace(self.session, parked_reason=reason, parked_at=self._clock.time()))

    async def _last_heard(self) -> float:
        query = select(func.max(turns.c.started_at)).where(
            turns.c.worker == self._task.worker, turns.c.outcome == str(Outcome.COMPLETED)
        )
        return float(await self._writer.read(lambda connection: connection.scalar(query)) or 0.0)

    async def _next_turn(self) -> None:
        self._resting.clear()
        try:
            warning = await self._warning()
            began = self._clock.time()
            turn_id = await self._surely(lambda: self._begin(began))
            prompt = self._prompt(began, warning)
            self._recorder.prompted(turn_id, prompt, 0)
            log.info("turn starts", extra={"worker": self._task.worker, "turn": turn_id})
            texts: list[str] = []
            end = await drive(self._adapter, self._recorder, prompt, turn_id, texts, self._heard)
            if end.outcome is Outcome.CRASHED and self._stopping.is_set():
                end = replace(end, outcome=Outcome.INTERRUPTED, reason="The worker was stopped.")
            self._recorder.ended(turn_id, end, "\n".join(texts))
            log.info(
                "turn ended",
                extra={
                    "worker": self._task.worker,
                    "turn": turn_id,
                    "outcome": str(end.outcome),
                    "reason": end.reason,
                },
            )
            if end.outcome is Outcome.COMPLETED:
                self._heard_at, self._resumed, self._limited = began, "", 0
                await self._save(replace(self.session, primed=True, failures=0, restarts=0))
            elif self._stopping.is_set():
                await self._save(self.session)
        finally:
            self._resting.set()
        if end.outcome is not Outcome.COMPLETED and not self._stopping.is_set():
            await self._recover(end)

    async def _begin(self, began: float) -> int:
        row = new_turn(self._task.worker, self.session.session_id, began, 0)

        async def operation(connection: AsyncConnection) -> int:
            key = (await connection.execute(insert(turns).values(**row))).inserted_primary_key
            assert key is not None, "one row was inserted"
            return int(key[0])

        return await self._writer.submit(operation)

    def _prompt(self, now: float, warning: Spent | None) -> str:
        clock = self._run_clock
        reminder = ""
        for name, due in (("last_call", clock.last_call_at), ("wind_down", clock.wind_down_at)):
            if now >= due:
                reminder = name if self._heard_at < due else ""
                break
        more = render(
            "baseline_next.md",
            kind=self._task.kind,
            left=duration(clock.left(now)),
            resumed=self._resumed,
            reminder=reminder,
            go_on=self.session.primed,
            spent=f"${warning.spent:.2f}" if warning else "",
            limit=f"${warning.limit:.2f}" if warning else "",
        )
        parts = [more] if self.session.primed else [self._task.first_prompt(), more]
        return "\n".join(part for part in parts if part.strip())

    async def _warning(self) -> Spent | None:
        """Return what is spent of a budget when the worker is to be warned of it now."""
        if self._usage is None:
            return None
        try:
            usage = await self._usage.usage()
        except ServiceError as error:
            log.warning("the gateway does not tell what is spent", extra={"error": str(error)})
            return None
        team = Spent("all", usage["team"]["spent_usd"], usage["team"]["budget_usd"])
        row = usage["workers"].get(self._task.worker, {})
        own = Spent("own", row.get("spent_usd", 0.0), row.get("budget_usd", 0.0))
        most = max(team, own, key=lambda spent: spent.share)
        share = next((share for share, _ in WARNINGS if most.share >= share), 0.0)
        if share <= self._warned:
            return None
        self._warned = share
        return most

    async def _recover(self, end: TurnEnd) -> None:
        """Carry out the rule of a turn that did not complete."""
        reason = end.reason or f"The turn ended as {end.outcome}."
        match end.outcome.rule:
            case Rule.WAIT:
                self._limited += 1
                await self._save(self.session)
                await self._pause(end.retry_after if end.retry_after is not None else self._policy.wait(self._limited))
            case Rule.PARK:
                self.parked = end.outcome
                raise Parked(reason)
            case Rule.FRESH:
                await self._start_anew(end.outcome, reason)
            case rule:
                failures = self.session.failures + 1
                await self._save(replace(self.session, failures=failures))
                if failures >= self._limits.failures:
                    await self._start_anew(end.outcome, reason)
                    return
                if rule is Rule.RESUME:
                    await self._adapter.stop()
                    await self._open(resume=True)
                await self._pause(self._policy.wait(failures))

    async def _start_anew(self, outcome: Outcome, reason: str) -> None:
        restarts = self.session.restarts + 1
        await self._save(replace(self.session, failures=0, restarts=restarts))
        if restarts > self._limits.restarts:
            self.parked = outcome
            raise Parked(f"{self._limits.restarts} fresh sessions in a row did not help. The last reason: {reason}")
        log.warning("session is given up", extra={"worker": self._task.worker, "reason": reason, "restarts": restarts})
        await self._adapter.stop()
        await self._open(resume=False)
        await self._pause(self._policy.wait(restarts))

    async def _open(self, *, resume: bool) -> None:
        """Start the CLI: in the known session where that is asked and works, in a fresh one otherwise."""
        known = self.session
        if resume and known.session_id:
            try:
                session_id = await self._start(known.session_id)
            except SessionLost as error:
                log.warning("session is lost", extra={"worker": self._task.worker, "error": str(error)})
                await self._adapter.stop()
            else:
                self._resumed = "same" if known.primed else self._resumed
                await self._save(replace(known, session_id=session_id))
                return
        session_id = await self._start(None)
        self._resumed = "fresh" if known.number else ""
        number, now = known.number + 1, self._clock.time()
        await self._save(replace(known, session_id=session_id, number=number, primed=False, started_at=now))

    async def _start(self, session_id: str | None) -> str:
        """Start the CLI; one that cannot run gets as many tries as a worker has fresh sessions."""
        rest = self._policy.wait
        return await start(
            self._adapter, session_id, self._limits.restarts, lambda failures: self._pause(rest(failures))
        )
