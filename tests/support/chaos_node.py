"""A node host in memory around a real runtime database, whose workers hear numbered messages and remember each."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from adapters.base import Outcome, Text, TurnEnd, TurnItem
from agensh.clients.http import backoff
from agensh.clock import Clock, SystemClock
from agensh.db import DatabaseUnavailable
from agensh.rundir import RunDir, WorkerSecrets
from router.backends import Listener, WorkerClients
from router.events import EventSink, NewEvent
from router.node import NodeHost
from router.posts import PostFeed
from tests.support.router_stage import (
    MemoryBoard,
    NoRuntime,
    Stage,
    StageAdapter,
    StageBackends,
    comment,
    direct_message,
    new_run,
)

CURSOR = "numbers"


class Numbers:
    """A source that has the numbers up to `count`, some of them direct messages; read again where the cursor stands."""

    def __init__(self, sink: EventSink, clock: Clock, count: int) -> None:
        self._sink = sink
        self._clock = clock
        self._count = count
        self.live = asyncio.Event()

    async def run(self) -> None:
        """Put a few at a time; a database that does not take them is asked again, as every listener does."""
        attempt = 0
        self.live.set()
        while True:
            try:
                done = int(await self._sink.cursor(CURSOR) or 0)
                if done >= self._count:
                    break
                # The overlap is what a listener reads again.
                numbers = range(max(1, done - 1), min(self._count, done + 3) + 1)
                events = [message(number) for number in numbers]
                await self._sink.put(events, {CURSOR: str(numbers[-1])})
                attempt = 0
            except DatabaseUnavailable:
                await self._clock.sleep(backoff(attempt, longest=1.0))
                attempt += 1
        await asyncio.Event().wait()


def message(number: int) -> NewEvent:
    """Return the event of a number; each has a thread of its own, for a prompt shows a thread as one."""
    text = f"number <{number}>"
    if number % 3 == 0:
        return direct_message(number, text)
    return comment(number, text, issue=number)


class NumberBackends(StageBackends):
    """Gives every worker its `Numbers`."""

    def __init__(self, board: MemoryBoard, clock: Clock, count: int) -> None:
        super().__init__(board)
        self._clock = clock
        self._count = count

    def listeners(
        self, worker: str, secrets: WorkerSecrets, clients: WorkerClients, sink: EventSink, posts: PostFeed
    ) -> Sequence[Listener]:
        return [Numbers(sink, self._clock, self._count)]


class NumberedNode:
    """The host, and what its workers were shown: `seen[worker][number]` is how often."""

    def __init__(self, folder: Path, *, workers: int, count: int, runtime_db: str = "") -> None:
        self.run: RunDir = new_run(folder, workers=workers, stagger=0.0)
        self.run.write_secrets(self.run.secrets().model_copy(update={"runtime_db": runtime_db}))
        self.count = count
        self.stage = Stage(self._turn)
        info, clock = self.run.info(), SystemClock()
        self.workers = info.spec.worker_names
        self.seen: dict[str, Counter[int]] = {name: Counter() for name in self.workers}
        self.board = MemoryBoard(clock)
        self.host = NodeHost(
            self.run,
            info,
            self.run.secrets(),
            adapter_factory=self.stage.adapter,
            runtime=NoRuntime(),
            clock=clock,
            workers=self.workers,
            backends=NumberBackends(self.board, clock, count),
            grace=2.0,
        )

    @property
    def shown(self) -> int:
        """How many numbers were shown, over all workers."""
        return sum(len(seen) for seen in self.seen.values())

    @property
    def complete(self) -> bool:
        """Say whether every worker saw every number."""
        return self.shown == self.count * len(self.workers)

    async def _turn(self, adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        self.seen[adapter.launch.worker].update({int(n) for n in re.findall(r"number <(\d+)>", prompt)})
        yield Text("done")
        yield TurnEnd(Outcome.COMPLETED)
