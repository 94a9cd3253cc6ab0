"""A node host to be killed: one worker whose turn lasts for ever, with a CLI that outlives its host.

`python -m tests.support.router_host RUN` prints `turn <pid of the CLI>` once the turn has its event.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.base import Outcome, Text, TurnEnd, TurnItem
from agensh.clock import SystemClock
from agensh.rundir import RunDir
from router.node import NodeHost
from tests.support.router_stage import MemoryBoard, Stage, StageAdapter, StageBackends, comment


class Detached:
    """A runtime whose processes do not notice that their host is gone."""

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Any:
        return await asyncio.to_thread(
            subprocess.Popen, command, env=dict(env), cwd=cwd, start_new_session=True, stdout=subprocess.DEVNULL
        )


class Keeping(StageAdapter):
    """Starts a real process, in a session whose name the test knows."""

    pid = 0

    async def start(self, session: str | None = None) -> str:
        process = await self.runtime.spawn(
            ["sleep", "600"], env=self.launch.env, cwd=self.launch.work, log=self.launch.log
        )
        Keeping.pid = process.pid
        return "kept-session"

    async def stop(self) -> None:
        await super().stop()
        if Keeping.pid:
            os.killpg(Keeping.pid, signal.SIGKILL)
            Keeping.pid = 0


async def for_ever(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
    yield Text("working")
    if "said before the kill" not in prompt:  # the start came before the comment
        yield TurnEnd(Outcome.COMPLETED)
        return
    sys.stdout.write(f"turn {Keeping.pid}\n")
    sys.stdout.flush()
    await adapter.interrupted.wait()
    yield TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.")


async def main(folder: Path) -> None:
    run = RunDir(folder)
    stage, backends = Stage(for_ever), StageBackends(MemoryBoard(SystemClock()))
    Keeping.stage = stage
    host = NodeHost(
        run, run.info(), run.secrets(), adapter_factory=lambda _name: Keeping, runtime=Detached(),
        clock=SystemClock(), workers=run.info().spec.worker_names, backends=backends,
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        group.create_task(host.run())
        await stage.until(lambda: "demo-worker1" in backends.ears)
        backends.ears["demo-worker1"].heard.put_nowait(([comment(1, "said before the kill")], {"gitea": "1"}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
