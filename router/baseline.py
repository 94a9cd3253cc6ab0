"""The process of a baseline: the run's clock and record around one worker alone (`alone.py`).

As with a node host: a kernel lock in the run folder, `t0` kept in the database, SIGTERM leaves the run `running`, to be
resumed. The deadline, or a budget that is spent, ends it as `finished`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adapters.base import Adapter, Outcome, Runtime
from agensh.clients.gateway import GatewayClient
from agensh.clock import Clock
from agensh.db import migrate, open_engine
from agensh.rundir import RunDir
from router.alone import LoneWorker, Task
from router.leftovers import end_leftovers
from router.lock import node_lock
from router.processes import RecordedRuntime, recorded_processes
from router.queue import RetryPolicy
from router.running import SHORTEST_WAIT, activate, running, set_state, stop_signals
from router.tables import MIGRATIONS, VERSION_TABLE
from router.workspace import launch, prepare
from router.writer import Writer


async def run_baseline(
    run: RunDir, *, adapter_factory: Callable[[str], type[Adapter]], runtime: Runtime, clock: Clock
) -> None:
    """Run the worker of a baseline until its deadline or SIGTERM, or until it cannot go on.

    AgenshError when another process runs it.
    """
    info, secrets = run.info(), run.secrets()
    (name,) = info.spec.worker_names
    worker_secrets = secrets.workers[name]
    section = info.spec.gateway
    budgeted = section is not None and bool(section.budget_usd or section.worker_budget_usd)
    with node_lock(run.path):
        await asyncio.to_thread(migrate, run.runtime_url, MIGRATIONS, version_table=VERSION_TABLE)
        engine = open_engine(run.runtime_url)
        gateway = GatewayClient(info.urls.gateway, secrets.gateway_admin) if budgeted else None
        try:
            async with running(Writer(engine, clock)) as writer:
                run_clock = await activate(writer, info, clock)
                end_leftovers(info.run_id, [name], await recorded_processes(engine))
                space = prepare(run, info, name, worker_secrets)
                adapter_class = adapter_factory(info.spec.worker.harness)
                worker = LoneWorker(
                    adapter_class(
                        launch(info, space, worker_secrets), RecordedRuntime(runtime, name, writer, clock), clock
                    ),
                    task=Task.of(info.spec, name, clone_url=str(run.workspace), reference=info.reference),
                    writer=writer,
                    run_clock=run_clock,
                    clock=clock,
                    usage=gateway,
                    policy=RetryPolicy(
                        first=max(SHORTEST_WAIT, run_clock.scaled(5.0)),
                        ceiling=max(SHORTEST_WAIT, run_clock.scaled(300.0)),
                    ),
                )
                with stop_signals(worker.stop):
                    if run_clock.left(clock.time()) > 0:
                        await worker.run()
                if run_clock.left(clock.time()) <= 0 or worker.parked is Outcome.QUOTA_SPENT:
                    await set_state(writer, info, clock, "finished")
        finally:
            if gateway is not None:
                await gateway.aclose()
            await engine.dispose()
