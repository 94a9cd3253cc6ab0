"""A load generator: `python -m agensh.rehearse.load RUN_DIR NUMBER PARENT_PID` runs its share of a rehearsal's workers.

It holds the tokens of workers only, takes the plan from the run folder, and writes what happened to `load-<n>.jsonl`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import httpx
import uvloop

from agensh.clients.http import new_http_client
from agensh.clock import Clock, SystemClock
from agensh.launch.parent import end_with_parent
from agensh.rehearse.log import LoadLog
from agensh.rehearse.plan import Plan, log_file
from agensh.rehearse.worker import Access, Worker
from agensh.rundir import RunDir

CONNECTIONS = httpx.Limits(max_connections=512, max_keepalive_connections=128, keepalive_expiry=60.0)


async def generate(run: RunDir, number: int, clock: Clock) -> None:
    """Run the workers whose index leaves `number` when divided by the number of generators."""
    plan, info, secrets = Plan.read(run.path), run.info(), run.secrets()
    names = tuple(info.spec.worker_names)
    contents = f"{info.urls.forge}/api/v1/repos/{info.owner}/{info.repository}/contents"
    log = LoadLog(log_file(run.path, number))
    try:
        async with new_http_client(limits=CONNECTIONS) as http, asyncio.TaskGroup() as group:
            for index in range(number, plan.workers, plan.generators):
                name = names[index]
                access = Access(
                    mcp_url=f"{info.node_url(name)}/mcp/{name}",
                    mcp_token=secrets.workers[name].mcp_token,
                    contents_url=contents,
                    forge_token=secrets.workers[name].forge_token,
                    names=names,
                )
                group.create_task(Worker(index, plan, access, http, log, clock).run())
    finally:
        log.close()


def main(arguments: list[str]) -> int:
    """Run one generator to the end of the plan; return the exit code."""
    folder, number, parent = arguments
    end_with_parent(int(parent), signal.SIGTERM)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(generate(RunDir(Path(folder)), int(number), SystemClock()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
