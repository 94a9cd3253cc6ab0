"""A load generator: `python -m agensh.rehearse.load RUN_DIR NUMBER PARENT_PID AGAIN`, for its share of the workers.

It holds the tokens of workers only, takes the plan from the run folder, and writes what happened to `load-<n>.jsonl`.
With AGAIN above 0 its workers only look at what is left for them, and that is written to a file of its own.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from agensh.clock import Clock, SystemClock
from agensh.launch.parent import end_with_parent
from agensh.rehearse.log import LoadLog
from agensh.rehearse.plan import Plan, log_file
from agensh.rehearse.worker import Access, Worker
from agensh.rundir import RunDir


async def generate(run: RunDir, number: int, clock: Clock, *, again: int = 0) -> None:
    """Run the workers whose index leaves `number` when divided by the number of generators.

    `again` counts the times that they have only looked at what is left, this one included; 0: they do all of the plan.
    """
    plan, info, secrets = Plan.read(run.path), run.info(), run.secrets()
    names = tuple(info.spec.worker_names)
    contents = f"{info.urls.forge}/api/v1/repos/{info.owner}/{info.repository}/contents"
    log = LoadLog(log_file(run.path, number, again))
    try:
        async with asyncio.TaskGroup() as group:
            for index in range(number, plan.workers, plan.generators):
                name = names[index]
                access = Access(
                    mcp_url=f"{info.node_url(name)}/mcp/{name}",
                    mcp_token=secrets.workers[name].mcp_token,
                    contents_url=contents,
                    forge_token=secrets.workers[name].forge_token,
                    names=names,
                )
                worker = Worker(index, plan, access, log, clock)
                group.create_task(worker.look_again() if again else worker.run())
    finally:
        log.close()


def main(arguments: list[str]) -> int:
    """Run one generator to the end of the plan; return the exit code."""
    folder, number, parent, again = arguments
    end_with_parent(int(parent), signal.SIGTERM)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(generate(RunDir(Path(folder)), int(number), SystemClock(), again=int(again)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
