"""Routes of the node host for people and for the launcher."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agensh.clock import RunClock
from router.router import Router


def status_routes(routers: Mapping[str, Router], token: str, run_id: str, run_clock: RunClock) -> list[Route]:
    """Return `GET /healthz` (open) and `GET /status` (bearer `token`; closed when there is none)."""

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "run": run_id})

    async def status(request: Request) -> Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not token or scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            return JSONResponse(
                {"error": "Send `Authorization: Bearer <node admin token of the run>`."},
                status_code=401,
                headers={"www-authenticate": 'Bearer realm="agensh"'},
            )
        workers = [await router.status() for router in routers.values()]
        return JSONResponse({"run": run_id, "t0": run_clock.t0, "deadline": run_clock.deadline, "workers": workers})

    return [Route("/healthz", healthz, methods=["GET"]), Route("/status", status, methods=["GET"])]
