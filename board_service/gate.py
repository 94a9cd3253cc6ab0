"""What stands before the routes: authentication of every path but two, and bounds on rates, queries and bodies.

Nothing of a request without a valid token is read, and no body is taken in beyond its bound or its time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agensh.db import DatabaseUnavailable, no_room
from agensh.entries import DETAIL_CAP
from board_service.auth import Principal, Role, unauthorised
from board_service.errors import Refusal, disk_full, refuse, storage_unavailable
from board_service.lane import answered
from board_service.service import BoardService

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
BODY_CAP = 512 * 1024  # bytes; a detail of 64 KiB has at most six times as many when JSON escapes every character
TOKEN_CAP = 512  # characters
HEADERS_CAP = 32 * 1024  # bytes
QUERY_CAP = 16 * 1024  # bytes


class Gate:
    """ASGI middleware; puts the caller into the request's state."""

    def __init__(self, app: ASGIApp, bug: Callable[[Request, Exception], Awaitable[Response]]) -> None:
        """`bug` makes the answer for a mistake of the board's own; `app` makes its own answers."""
        self._app = app
        self._bug = bug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller: Principal | None = None
            if scope["path"] not in OPEN_PATHS:
                request.state.token = _token(request)
                request.state.principal = caller = await self._principal(request)
                _check_rate(request)
            _check_sizes(request)
            body = _Bounded(receive, request.app.state.service.settings.body_seconds)
            if caller is None or not await self._lane(request, body, send, caller):
                await self._app(scope, body.receive, send)
        except Refusal as refusal:
            await answer(request, refusal)(scope, receive, send)
        except (SQLAlchemyError, DatabaseUnavailable) as error:
            await failed(request, error)(scope, receive, send)
        except ClientDisconnect:
            pass  # nobody waits for the answer

    async def _lane(self, request: Request, body: _Bounded, send: Send, caller: Principal) -> bool:
        try:
            return await answered(request.scope, body.receive, send, request.app.state.service, caller)
        except (Refusal, SQLAlchemyError, DatabaseUnavailable, ClientDisconnect):
            raise
        except Exception as error:
            log.exception("the board made a mistake", extra={"path": request.url.path})
            await (await self._bug(request, error))(request.scope, body.receive, send)
            return True

    async def _principal(self, request: Request) -> Principal:
        service: BoardService = request.app.state.service
        try:
            found = await service.tokens.find(request.state.token)
        except (SQLAlchemyError, DatabaseUnavailable) as error:
            service.storage_failed(error, "reading")
            raise storage_unavailable() from None
        if found is None:
            raise unauthorised()
        return found


def answer(request: Request, refusal: Refusal) -> JSONResponse:
    """Return the response for a refusal, counted."""
    service: BoardService | None = getattr(request.app.state, "service", None)
    if service is not None:
        for mistake in refusal.mistakes:
            service.metrics.rejections[mistake.code] += 1
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(refusal.body(), refusal.status, headers)


def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of the database, whose own words go to the log only."""
    service: BoardService = request.app.state.service
    if not service.storage_failed(error, "reading" if request.method in {"GET", "HEAD"} else "writing"):
        log.error("the database failed", extra={"path": request.url.path}, exc_info=error)
    return answer(request, disk_full() if no_room(error) else storage_unavailable())


def _token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token or len(token) > TOKEN_CAP:
        raise unauthorised()
    return token


def _check_rate(request: Request) -> None:
    caller: Principal = request.state.principal
    if caller.role is Role.ADMIN:
        return
    service: BoardService = request.app.state.service
    reads = request.method in {"GET", "HEAD"}
    wait = (service.reads if reads else service.writes).take(f"{caller.board}/{caller.name}")
    if wait:
        settings = service.settings
        rate = settings.read_rate if reads else settings.write_rate
        raise refuse(
            429,
            "too_many_requests",
            f"Too many {'reads' if reads else 'writes'}: {rate:g} a second are allowed in the long run; wait.",
            retry_after=max(1, math.ceil(wait)),
        )


def _check_sizes(request: Request) -> None:
    if len(request.scope["query_string"]) > QUERY_CAP:
        raise refuse(422, "query_too_long", f"query: it has more than {QUERY_CAP} bytes.")
    if sum(len(name) + len(value) for name, value in request.scope["headers"]) > HEADERS_CAP:
        raise refuse(431, "headers_too_long", f"headers: they have more than {HEADERS_CAP} bytes.")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > BODY_CAP:
        raise _body_too_long()


def _body_too_long() -> Refusal:
    return refuse(
        413,
        "body_too_long",
        f"body: it has more than {BODY_CAP} bytes; a detail may have at most {DETAIL_CAP} bytes of UTF-8.",
    )


class _Bounded:
    """Counts a body that came without its length, and waits for it no longer than `seconds`."""

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._seconds = seconds
        self._taken = 0
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()  # waits for the end of the connection
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            raise refuse(408, "body_late", f"body: it did not arrive within {self._seconds:g} s.") from None
        self._whole = not message.get("more_body", False)
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            if self._taken > BODY_CAP:
                raise _body_too_long()
        return message
