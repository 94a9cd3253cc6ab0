"""The gateway of a run: a key per worker."""

from __future__ import annotations

from agensh.clients.gateway import GatewayClient
from agensh.provision.job import Job


async def provision_gateway(job: Job) -> None:
    """Give every worker a key of the gateway; a key that still works stays."""
    admin = GatewayClient(job.info.urls.gateway, job.secrets.gateway_admin, job.http)

    async def key(name: str) -> None:
        worker = job.secrets.workers[name]
        if not worker.gateway_key or not await admin.key_works(worker.gateway_key):
            worker.gateway_key = await admin.new_key(name)

    await job.each("gateway: keys", job.workers, key)
