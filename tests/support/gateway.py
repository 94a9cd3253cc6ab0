"""A gateway before a provider of our own, on real ports, with a key for each of two workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agensh.clock import SystemClock
from agensh.gateway.app import Gateway, create_app
from agensh.gateway.ledger import read_requests
from agensh.serving import make_server, open_socket
from agensh.spec import GatewaySection
from agensh.urls import sqlite_url
from tests.support.provider import Provider

ADMIN = "gateway-admin-token"
CREDENTIAL = "sk-the-providers-own-credential-0123456789"
ONE, TWO = "demo-worker1", "demo-worker2"


@dataclass
class Served:
    """A gateway that answers."""

    url: str
    gateway: Gateway
    database: str
    keys: dict[str, str]
    http: httpx.AsyncClient

    def auth(self, worker: str = ONE) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[worker]}"}

    async def ask(self, path: str, body: Mapping[str, Any], worker: str = ONE, **more: Any) -> httpx.Response:
        """Send a request of a worker and read the answer to its end."""
        return await self.http.post(path, json=body, headers=self.auth(worker), **more)

    async def usage(self) -> dict[str, Any]:
        answer = await self.http.get("/usage", headers={"Authorization": f"Bearer {ADMIN}"})
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    async def rows(self) -> list[Mapping[str, Any]]:
        """Return the requests on record."""
        return [row async for row in read_requests(self.database)]


def section(upstream: Provider | str, **values: Any) -> GatewaySection:
    """Return a spec section for a provider."""
    url = upstream if isinstance(upstream, str) else upstream.url
    return GatewaySection.model_validate({"base_url": url, "api_key_env": "UNUSED"} | values)


@asynccontextmanager
async def serving_gateway(folder: Path, upstream: Provider | str, **values: Any) -> AsyncIterator[Served]:
    """Run a gateway over `folder` in this event loop."""
    import asyncio

    database = sqlite_url(folder / "gateway.sqlite3")
    gateway = Gateway(section(upstream, **values), CREDENTIAL, ADMIN, database, SystemClock())
    listening = open_socket("127.0.0.1", 0, "gateway")
    server = make_server(create_app(gateway, "run-1"), gateway.stop, ws="none")
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server._serve([listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        async with asyncio.timeout(30), httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
            while not server.started:
                if task.done():
                    task.result()
                await asyncio.sleep(0.005)
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
            served = Served(url, gateway, database, {}, http)
            for worker in (ONE, TWO):
                made = await http.post("/keys", json={"worker": worker}, headers={"Authorization": f"Bearer {ADMIN}"})
                served.keys[worker] = made.json()["key"]
            yield served
    finally:
        server.should_exit = True
        gateway.stop()
        await task
        listening.close()
