"""The harness of a rehearsal: no CLI, only its turns. The worker's calls come from a load generator.

A turn stays open for a while, as that of a CLI does, and then ends as completed, so that a worker is reached both ways:
by notices in the middle of a turn and by the prompt of the next one. Every prompt is kept, with the time it came at, in
`prompts.jsonl` in the worker's work folder: `{"at": epoch seconds, "prompt": text}` a line.

Options: `turn`, the mean length of a turn in seconds (0: as long as the run), and `seed`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from typing import ClassVar

from adapters.base import Adapter, Outcome, Runtime, Text, TurnEnd, TurnItem, WorkerLaunch
from agensh.clock import Clock

PROMPTS = "prompts.jsonl"


class RehearsalAdapter(Adapter):
    """Takes prompts and does nothing with them but write them down."""

    name: ClassVar[str] = "rehearsal"
    needs_tools: ClassVar[bool] = True

    def __init__(self, launch: WorkerLaunch, runtime: Runtime, clock: Clock) -> None:
        super().__init__(launch, runtime, clock)
        self._mean = float(launch.options.get("turn", "0"))
        self._random = random.Random(f"{launch.options.get('seed', '0')}:{launch.worker}:turns")
        self._interrupted = asyncio.Event()

    async def start(self, session: str | None = None) -> str:
        """See `Adapter.start`."""
        self._interrupted.clear()
        return session or f"rehearsal-{self.launch.worker}"

    async def turn(self, prompt: str) -> AsyncGenerator[TurnItem]:
        """See `Adapter.turn`."""
        line = json.dumps({"at": self.clock.time(), "prompt": prompt}) + "\n"
        await asyncio.to_thread(self._keep, line)
        yield Text("rehearsing")
        length = self._random.uniform(0.5, 1.5) * self._mean or None
        try:
            await asyncio.wait_for(self._interrupted.wait(), length)
        except TimeoutError:
            yield TurnEnd(Outcome.COMPLETED)
        else:
            yield TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.")

    async def interrupt(self) -> None:
        """See `Adapter.interrupt`."""
        self._interrupted.set()

    async def stop(self) -> None:
        """See `Adapter.stop`."""
        self._interrupted.set()

    def _keep(self, line: str) -> None:
        with (self.launch.work / PROMPTS).open("a", encoding="utf-8") as file:
            file.write(line)
