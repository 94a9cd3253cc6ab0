"""Everything a run needs on its services.

Every step looks first and then creates, so provisioning may be killed anywhere and run again: nothing is doubled and
nothing is missing. Secrets are saved after every group of workers; a token whose secret was lost is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import httpx

from agensh.clients.http import new_http_client
from agensh.provision.board import provision_board
from agensh.provision.chat import provision_chat
from agensh.provision.forge import provision_forge
from agensh.provision.gateway import provision_gateway
from agensh.provision.job import Job, repeated
from agensh.rundir import RunDir, RunInfo, RunSecrets


async def provision(
    run: RunDir,
    info: RunInfo,
    secrets: RunSecrets,
    *,
    progress: Callable[[str], None],
    concurrency: int = 8,
    http: httpx.AsyncClient | None = None,
) -> RunSecrets:
    """Provision the services of a run and return its completed secrets, which are also in `secrets.json`.

    `progress` gets one line a step. AgenshError tells what is wrong with a service and what to change there.
    """
    client = http or new_http_client()
    try:
        job = Job(run, info, secrets, progress, concurrency, client)
        await job.prepare()
        for part in (provision_forge, provision_chat, provision_board):
            await repeated(partial(part, job))
        if info.spec.gateway is not None:
            await provision_gateway(job)
        return job.secrets
    finally:
        if http is None:
            await client.aclose()
