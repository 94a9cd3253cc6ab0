"""Liveness, readiness and metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from board_service.api.deps import Caller, ErrorBody, Service, access, errors
from board_service.auth import Role
from board_service.errors import refuse, storage_unavailable

open_router = APIRouter(tags=["health"])
router = APIRouter(tags=["health"])

READY_SECONDS = 2.0


@open_router.get("/healthz", openapi_extra=access("open"))
async def healthz() -> dict[str, str]:
    """Answer as long as the process lives; needs no token and touches nothing."""
    return {"status": "ok"}


@open_router.get("/readyz", responses={503: {"model": ErrorBody}}, openapi_extra=access("open"))
async def readyz(service: Service) -> dict[str, str]:
    """Answer whether the storage answers; needs no token."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await service.store.ping()
    except TimeoutError:
        raise storage_unavailable() from None
    return {"status": "ready"}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text format"}, **errors()},
    openapi_extra=access("monitor"),
)
async def metrics(service: Service, caller: Caller) -> PlainTextResponse:
    """Return counters in the Prometheus text format; for readers and admins."""
    if caller.role is Role.WORKER:
        raise refuse(403, "not_reader", "This needs a reader's or an admin's token; yours is a worker's.")
    subscribers = sum(board.feed.subscribers for board in service.boards())
    return PlainTextResponse(service.metrics.text(subscribers), media_type="text/plain; version=0.0.4")


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> JSONResponse:
    """Return the description of this interface."""
    return JSONResponse(request.app.openapi())
