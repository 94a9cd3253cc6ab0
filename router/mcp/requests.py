"""Requests of workers to their node host: how much and how long one may be, and how it is refused."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

BODY_SECONDS = 30.0  # for one request to arrive
BODY_LIMIT = 2 * 1024 * 1024  # bytes of one request; the largest argument is a detail of 64 KiB


class BodyRefused(Exception):
    """The body breaks a bound; `answer` says which."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = refusal(status, message)


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return the answer to a request that is not served."""
    extra = {"www-authenticate": 'Bearer realm="agensh"'} if status == 401 else {}
    return JSONResponse({"error": message}, status_code=status, headers=extra | (headers or {}))


async def whole_body(request: Request) -> bytes:
    """Take the body in, bounded in size and time; BodyRefused, or ClientDisconnect when the client left meanwhile."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part: bytes = message.get("body", b"")
                body += part
                if len(body) > BODY_LIMIT:
                    raise BodyRefused(413, f"The request has more than {BODY_LIMIT} bytes.")
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        raise BodyRefused(408, f"The request did not arrive within {BODY_SECONDS:g} s.") from None


def replayed(request: Request, body: bytes) -> Receive:
    """Return a `receive` that hands on a body that was taken in already, then what follows it."""
    handed_on = False

    async def receive() -> Message:
        nonlocal handed_on
        if handed_on:
            return await request.receive()
        handed_on = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
