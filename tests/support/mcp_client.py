"""Workers of a host's MCP endpoint, and clients of it: the official one and raw HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from agensh.clock import SystemClock
from tests.support.workers import StubWorker

CLOCK = SystemClock()
Mode = Literal["legacy", "auto"]
ONE, TWO = "demo-worker1", "demo-worker2"


def two_workers() -> dict[str, StubWorker]:
    """Return two peers by their names."""
    return {name: StubWorker(name, CLOCK, peers=tuple({ONE, TWO} - {name})) for name in (ONE, TWO)}


def rpc(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def http(base: str, token: str = f"token-of-{ONE}", **headers: str) -> httpx.AsyncClient:
    accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    return httpx.AsyncClient(
        base_url=base, trust_env=False, headers={**accept, "authorization": f"Bearer {token}", **headers}
    )


@asynccontextmanager
async def session(base: str, worker: str = ONE, mode: Mode = "legacy") -> AsyncIterator[mcp.Client]:
    """The official client; `mode` is the era of the protocol it speaks."""
    headers = {"authorization": f"Bearer token-of-{worker}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http_client:
        transport = streamable_http_client(f"{base}/mcp/{worker}", http_client=http_client)
        async with mcp.Client(transport, mode=mode) as client:
            yield client
