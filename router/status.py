"""Routes of the node host for people and for the launcher."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agensh.clock import RunClock
from agensh.db import DatabaseUnavailable
from router.feed import BoardFeed
from router.posts import PostFeed
from router.queue import Depth, depths
from router.router import Router
from router.writer import Writer


class TokenHolder(Protocol):
    """What the routes need of a worker."""

    def authorises(self, token: str) -> bool:
        """Say whether `token` is this worker's own."""
        ...


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node host can say of itself."""

    run_id: str
    run_clock: RunClock
    routers: Mapping[str, Router]
    feed: BoardFeed
    posts: PostFeed
    writers: Sequence[Writer]

    async def read(self) -> dict[str, Any]:
        """Return it as plain data; one query, however many workers there are."""
        waiting = await depths(self.writers[0], list(self.routers))
        empty = Depth(0, None)
        return {
            "run": self.run_id,
            "t0": self.run_clock.t0,
            "deadline": self.run_clock.deadline,
            "feed": {"head": self.feed.head, "connected": self.feed.connected},
            "posts": {"head": self.posts.head},
            "unwritten": sum(writer.backlog for writer in self.writers),
            "workers": [router.status(waiting.get(name, empty)) for name, router in self.routers.items()],
        }

    def unpark(self) -> list[str]:
        """Let parked workers go on; return who was parked."""
        return [name for name, router in self.routers.items() if router.unpark()]


def status_routes(
    workers: Mapping[str, TokenHolder],
    token: str,
    run_id: str,
    read: Callable[[], Awaitable[dict[str, Any]]],
    unpark: Callable[[], list[str]],
) -> list[Route]:
    """Return `GET /healthz` (open) and, for the bearer of `token` (empty: closed), `GET /status` and `POST /unpark`.

    They answer what `read` returns, and the workers that `unpark` lets go on.
    """

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "run": run_id})

    def refused(request: Request) -> Response | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if token and hmac.compare_digest(given.encode(), token.encode()):
            return None
        if given and any(worker.authorises(given) for worker in workers.values()):
            return JSONResponse({"error": "This needs the run's node admin token; yours is a worker's."}, 403)
        return JSONResponse(
            {"error": "Send `Authorization: Bearer <node admin token of the run>`."},
            status_code=401,
            headers={"www-authenticate": 'Bearer realm="agensh"'},
        )

    async def status(request: Request) -> Response:
        if (refusal := refused(request)) is not None:
            return refusal
        try:
            return JSONResponse(await read())
        except DatabaseUnavailable as error:
            return JSONResponse({"error": str(error)}, 503)

    async def go_on(request: Request) -> Response:
        return refused(request) or JSONResponse({"workers": unpark()})

    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/status", status, methods=["GET"]),
        Route("/unpark", go_on, methods=["POST"]),
    ]
