"""Whether a CLI has found our tools, told by the one who knows: the MCP endpoint of the worker's node host.

CLIs start without the tools of a server that does not answer, and most say so in a log at best.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from adapters.base import WorkerLaunch

_LIMIT = 10.0  # seconds; the endpoint is in this process, or one of this machine


@dataclass(frozen=True, slots=True)
class Seen:
    """What the endpoint has seen of the worker's CLI."""

    count: int = 0
    """How often its tools were listed or called, since the host started."""
    trouble: str = ""
    """Why the endpoint cannot be reached with the worker's token; empty when it can."""
    known: bool = True
    """The endpoint is one that counts; another's says nothing either way."""


async def seen(launch: WorkerLaunch) -> Seen:
    """Ask the worker's endpoint."""
    headers = {"Authorization": f"Bearer {launch.mcp_token}", "Accept": "application/json"}
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=_LIMIT, headers=headers) as client:
            answer = await client.get(f"{launch.mcp_url.rstrip('/')}/seen")
    except httpx.HTTPError as error:
        return Seen(trouble=f"it does not answer ({type(error).__name__})")
    if answer.status_code in (401, 403):
        return Seen(trouble=f"it refuses the worker's token ({answer.status_code})")
    try:
        count = answer.json()["count"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        count = None
    return Seen(count) if isinstance(count, int) else Seen(known=False)
