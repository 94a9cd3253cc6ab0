"""A node host with a real CLI, to be killed: `python -m tests.support.cli_host RUN` runs the worker of a run.

What the worker hears comes as JSON lines on standard input, each `{"number": 1, "text": "…", "direct": false}`; `heard
NUMBER` is printed once the queue has it. The board is in memory, the adapter and its process are those of a real run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from adapters.registry import adapter_class
from adapters.runtime import LocalRuntime
from agensh.clock import SystemClock
from agensh.rundir import RunDir, WorkerSecrets
from router.backends import WorkerClients
from router.node import NodeHost
from tests.support.router_stage import MemoryBoard, StageBackends, comment, direct_message, until


class Backends(StageBackends):
    """Those of a stage, with a board that the worker's tools can read."""

    def clients(self, worker: str, secrets: WorkerSecrets) -> WorkerClients:
        """See router.backends.Backends."""
        board: Any = self.board
        nothing: Any = None
        return WorkerClients(board, nothing, nothing)


async def hear(backends: StageBackends, worker: str) -> None:
    """Put what stands on standard input into the worker's queue, line by line."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await until(lambda: worker in backends.ears)
    sink = backends.ears[worker].sink
    while line := await lines.readline():
        said = json.loads(line)
        number, text = int(said["number"]), str(said["text"])
        event = direct_message(number, text) if said["direct"] else comment(number, text, issue=number)
        await sink.put([event], {"stage": str(number)})
        os.write(sys.stdout.fileno(), f"heard {number}\n".encode())


async def main(folder: Path) -> None:
    run = RunDir(folder)
    info = run.info()
    backends = Backends(MemoryBoard(SystemClock()))
    host = NodeHost(
        run, info, run.secrets(), adapter_factory=adapter_class, runtime=LocalRuntime(), clock=SystemClock(),
        workers=info.spec.worker_names, backends=backends,
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        hearing = group.create_task(hear(backends, info.spec.worker_names[0]))
        await host.run()
        hearing.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
