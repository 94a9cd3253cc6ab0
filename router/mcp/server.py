"""The MCP endpoints of one node host: `/mcp/<worker>` for every worker it runs.

One low-level server and one session manager serve them all; a handler finds its worker in the request's scope, so a
worker costs nothing until it calls. Requests are stateless: a restarted host needs no new handshake. Each call first
acknowledges the notices handed out before it, then runs, then carries what is pending now. A notice whose result could
not be sent, or that no later call or turn end followed, is handed out again (at least once).
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Lifespan, Receive, Scope, Send

from agensh.bounded_http import arrived_on
from agensh.clock import Clock
from agensh.ratelimit import Rate, RateLimiter
from router.mcp.calls import new_server, text_result
from router.mcp.hooks import hook_answer
from router.mcp.notices import NOTICE_ROOM, add_notice, place
from router.mcp.pending import pending_answer
from router.mcp.readers import Readers
from router.mcp.requests import BODY_LIMIT, BodyRefused, refusal, replayed, whole_body
from router.ports import ToolCall, WorkerPort
from router.tools.board import TOOLS as BOARD_TOOLS
from router.tools.chat import TOOLS as CHAT_TOOLS
from router.tools.forge import TOOLS as FORGE_TOOLS
from router.tools.registry import CALL_TIMEOUT, Tool, Toolbox

log = logging.getLogger(__name__)

WORKER_KEY = "agensh.worker"
ARGUMENTS_CAP = 2_000  # characters of the arguments in the record
SUMMARY_CAP = 200  # characters of the result in the record
READER_NAME = 32  # characters
CALL_RATE = Rate(50.0, 10_000)
"""Requests of one worker. A CLI makes a few a second at most; the burst lets a minute of anything pass."""

ALL_TOOLS: tuple[Tool[WorkerPort], ...] = (*BOARD_TOOLS, *CHAT_TOOLS, *FORGE_TOOLS)


INSTRUCTIONS = (
    "Tools of your team: the shared board (board_*), the chat (chat_*) and the forge (forge_*). "
    "What others send you while you work arrives at the end of tool results under [agensh notices]."
)


class Endpoint:
    """Serves the calls of all workers of one host."""

    def __init__(
        self,
        workers: Mapping[str, WorkerPort],
        toolbox: Toolbox[WorkerPort],
        *,
        clock: Clock,
        notice_chars: int,
        rate: Rate,
    ) -> None:
        self._workers = workers
        self._toolbox = toolbox
        self._clock = clock
        self._room = notice_chars
        self._rate = rate
        self._limiter = RateLimiter(rate, clock)
        self._readers = Readers()
        self._seen: Counter[str] = Counter()
        server = new_server(toolbox, instructions=INSTRUCTIONS, on_call=self._call, on_list=self._listed)
        # No session ids: a call needs nothing of an earlier one. The second manager is for clients that take SSE only.
        self._json = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=BODY_LIMIT
        )
        self._sse = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=BODY_LIMIT)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self._json.run(), self._sse.run():
            yield

    def authorise(self, request: Request) -> WorkerPort | Response:
        """Return the worker of the path when the bearer token is its own; the refusal otherwise."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return refusal(401, "A bearer token is missing: send `Authorization: Bearer <MCP token of the worker>`.")
        name = request.path_params["worker"]
        worker = self._workers.get(name)
        if worker is not None and worker.authorises(token):
            wait = self._limiter.take(name)
            return worker if not wait else self._too_many(wait)
        # Only a holder of some worker's token learns which names exist.
        if not any(other.authorises(token) for other in self._workers.values()):
            return refusal(401, "The bearer token is not valid.")
        if worker is None:
            return refusal(404, f"There is no worker {name!r} on this host.")
        return refusal(403, f"The bearer token belongs to another worker than {name!r}.")

    def _too_many(self, wait: float) -> Response:
        return refusal(
            429,
            f"Too many requests: {self._rate.per_second:g} a second are allowed in the long run; wait.",
            {"retry-after": str(max(1, math.ceil(wait)))},
        )

    async def pending(self, request: Request) -> Response:
        """Answer `GET /pending/{worker}?ack=&room=&reader=&got=` in the board's shape, for that worker's shims."""
        worker = self.authorise(request)
        if isinstance(worker, Response):
            return worker
        try:
            ack = int(request.query_params.get("ack") or 0)
            got = int(request.query_params["got"]) if "got" in request.query_params else None
            room = min(int(request.query_params.get("room") or self._room), self._room)
        except ValueError:
            return refusal(422, "ack, got and room must be integers.")
        reader = self._readers.reader(worker.name, request.query_params.get("reader", "")[:READER_NAME], got)
        if ack and ack == reader.answers:
            worker.desk.acknowledge()
        wanted = room > 0 and not await request.is_disconnected()
        arrived = reader.next_answer(arrived_on(request.scope))
        notice = worker.desk.collect(room, arrived=arrived) if wanted else None
        if notice is not None:
            reader.answers += 1
        lines = notice.text.split("\n")[1:] if notice else []
        shown = list(zip(notice.refs, lines, strict=False)) if notice else []
        tail = lines[len(shown) :]
        return JSONResponse(
            pending_answer(
                worker.name,
                shown,
                cursor=reader.answers,
                more=int(tail[0].split(" ", 1)[0]) if tail else 0,
            )
        )

    async def hook(self, request: Request) -> Response:
        """Answer `POST /hooks/{worker}/{style}`, the hooks of that worker's CLI, with what is pending."""
        worker = self.authorise(request)
        if isinstance(worker, Response):
            return worker
        return await hook_answer(request, worker.desk, room=self._room)

    async def seen(self, request: Request) -> Response:
        """Answer `GET /mcp/{worker}/seen`: how often the tools were listed or called, 0 when no CLI has found them."""
        worker = self.authorise(request)
        if isinstance(worker, Response):
            return worker
        return JSONResponse({"worker": worker.name, "count": self._seen[worker.name]})

    def _listed(self, context: ServerRequestContext[Any, Request]) -> None:
        assert context.request is not None, "the transport attaches the HTTP request"
        self._seen[context.request.scope[WORKER_KEY].name] += 1

    async def _call(
        self, context: ServerRequestContext[Any, Request], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        assert context.request is not None, "the transport attaches the HTTP request"
        worker: WorkerPort = context.request.scope[WORKER_KEY]
        worker.desk.acknowledge()
        self._seen[worker.name] += 1
        started = self._clock.time()
        arrived = arrived_on(context.request.scope)
        reply = await self._toolbox.call(worker, params.name, params.arguments, arrived)
        # Before the notice: messages that this very call has read are not announced with its result.
        worker.record(
            ToolCall(
                tool=params.name,
                arguments=_encode(params.arguments or {})[:ARGUMENTS_CAP],
                ok=not reply.is_error,
                summary=reply.text[:SUMMARY_CAP],
                started_at=started,
                ended_at=self._clock.time(),
            )
        )
        if not worker.desk.waiting():
            block = types.TextContent(type="text", text=reply.text)
            return types.CallToolResult(content=[block], is_error=reply.is_error)
        result = text_result(reply)
        placement = place(result, room=self._room)
        # An answer nobody waits for any more proves nothing: what it would show stays pending.
        if placement is not None and placement.room and not await context.request.is_disconnected():
            notice = worker.desk.collect(placement.room, arrived=arrived)
            if notice is not None:
                result = add_notice(result, notice.text)
        return types.CallToolResult.model_validate(result)

    async def mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of the MCP endpoint."""
        request = Request(scope, receive)
        worker = self.authorise(request)
        if isinstance(worker, Response):
            await worker(scope, receive, send)
            return
        if request.method != "POST":
            # Nothing is ever pushed and there is no session to end; 405 is what clients expect then.
            no_stream = refusal(405, "This endpoint is stateless: it takes POST only.", {"allow": "POST"})
            await no_stream(scope, receive, send)
            return
        try:
            body = await whole_body(request)
        except BodyRefused as refused:
            await refused.answer(scope, receive, send)
            return
        except ClientDisconnect:
            return  # it left in the middle of its request; nothing was called
        scope[WORKER_KEY] = worker
        receive = replayed(request, body)
        accept = request.headers.get("accept", "*/*")
        if "application/json" not in accept and "*/*" not in accept and "text/event-stream" in accept:
            await self._sse.handle_request(_accepting_both(scope), receive, send)
        else:
            await self._json.handle_request(scope, receive, send)


_encode: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: `json.dumps` makes an encoder for each call that is not of the plainest kind."""


def _accepting_both(scope: Scope) -> Scope:
    headers = [(key, value) for key, value in scope["headers"] if key != b"accept"]
    scope["headers"] = [*headers, (b"accept", b"application/json, text/event-stream")]
    return scope


class _McpRoute:
    """An ASGI endpoint; a class, so that Starlette hands it the raw scope for every method."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint.mcp(scope, receive, send)


class _McpApp(Starlette):
    """Takes a tool call to its route at once: the way there through the guards of all routes costs each call a
    twentieth of its time, and the endpoint answers every method and every fault by itself."""

    def __init__(self, mcp: _McpRoute, routes: Sequence[Route], lifespan: Lifespan[Starlette]) -> None:
        super().__init__(routes=[Route("/mcp/{worker}", mcp), *routes], lifespan=lifespan)
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            start, _, worker = scope["path"].rpartition("/")
            if start == "/mcp" and worker:
                scope["path_params"] = {"worker": worker}
                await self._mcp(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def create_mcp_app(
    workers: Mapping[str, WorkerPort],
    *,
    clock: Clock,
    notice_chars: int = NOTICE_ROOM,
    tools: Sequence[Tool[WorkerPort]] = ALL_TOOLS,
    call_timeout: float = CALL_TIMEOUT,
    rate: Rate = CALL_RATE,
) -> Starlette:
    """Return the ASGI app of a host's MCP endpoints; `workers` may change while it runs.

    `notice_chars` bounds what a notice adds to one result; `call_timeout` is in seconds; `rate` bounds the
    requests of one worker.
    """
    endpoint = Endpoint(
        workers, Toolbox(tools, clock=clock, timeout=call_timeout), clock=clock, notice_chars=notice_chars, rate=rate
    )
    return _McpApp(
        _McpRoute(endpoint),
        [
            Route("/mcp/{worker}/seen", endpoint.seen, methods=["GET"]),
            Route("/pending/{worker}", endpoint.pending, methods=["GET"]),
            Route("/hooks/{worker}/{style}", endpoint.hook, methods=["POST"]),
        ],
        endpoint.lifespan,
    )
