"""Routes of the node host for people and for the launcher."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agensh.clock import RunClock


class Reporter(Protocol):
    """What the status needs of a worker."""

    def authorises(self, token: str) -> bool:
        """Say whether `token` is this worker's own."""
        ...

    async def status(self) -> dict[str, Any]:
        """Return what is shown of the worker."""
        ...


def status_routes(routers: Mapping[str, Reporter], token: str, run_id: str, run_clock: RunClock) -> list[Route]:
    """Return `GET /healthz` (open) and `GET /status` (bearer `token`; closed when there is none)."""

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "run": run_id})

    async def status(request: Request) -> Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            if given and any(router.authorises(given) for router in routers.values()):
                return JSONResponse({"error": "This needs the run's node admin token; yours is a worker's."}, 403)
            return JSONResponse(
                {"error": "Send `Authorization: Bearer <node admin token of the run>`."},
                status_code=401,
                headers={"www-authenticate": 'Bearer realm="agensh"'},
            )
        workers = [await router.status() for router in routers.values()]
        return JSONResponse({"run": run_id, "t0": run_clock.t0, "deadline": run_clock.deadline, "workers": workers})

    return [Route("/healthz", healthz, methods=["GET"]), Route("/status", status, methods=["GET"])]
