"""What happens around every HTTP request: an id and a date for it, and the rate limit when it is switched on."""

from __future__ import annotations

import math
from collections import OrderedDict
from email.utils import formatdate

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agensh.clock import Clock
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.settings import SERVER_VERSION, ChatSettings

KEYS = 10_000
"""Clients whose rate is remembered (`RateLimitSettings.MemoryStoreSize`)."""


class RequestId:
    """Gives every request an id, sent back as `X-Request-Id`, and its answer the date by which posts are dated."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope["chat_request_id"] = new_id()
        chat: Chat = scope["app"].state.chat

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["Date"] = formatdate(chat.now() / 1000, usegmt=True)
                headers["X-Version-Id"] = f"{SERVER_VERSION}.{SERVER_VERSION}.agensh.false"
            await send(message)

        await self.app(scope, receive, send_with_id)


class RateLimit:
    """A leaky bucket for each client address: 429 in plain text, with the wait in `X-RateLimit-Reset`."""

    def __init__(self, app: ASGIApp, *, settings: ChatSettings, clock: Clock) -> None:
        self.app = app
        self._on = settings.rate_limit
        self._interval = 1.0 / settings.rate_limit_per_second
        self._limit = settings.rate_limit_burst + 1
        self._clock = clock
        self._full_until: OrderedDict[str, float] = OrderedDict()
        """When a client's bucket will have drained, by address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._on:
            await self.app(scope, receive, send)
            return
        client = Request(scope).client
        refused, left, reset = self._take(client.host if client else "")
        headers = {
            "X-RateLimit-Limit": str(self._limit),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Reset": str(math.ceil(reset)),
        }
        if refused:
            headers["Retry-After"] = str(math.ceil(self._interval))
            await PlainTextResponse("limit exceeded\n", 429, headers)(scope, receive, send)
            return

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self.app(scope, receive, send_with_limits)

    def _take(self, key: str) -> tuple[bool, int, float]:
        """Count a request; return whether it is refused, how many are left, and seconds until all are."""
        now = self._clock.monotonic()
        drained = max(now, self._full_until.get(key, now))
        refused = drained + self._interval - now > self._limit * self._interval + 1e-9
        if not refused:
            drained += self._interval
        self._full_until[key] = drained
        self._full_until.move_to_end(key)
        while len(self._full_until) > KEYS:
            self._full_until.popitem(last=False)
        return refused, max(0, int(self._limit - (drained - now) / self._interval)), drained - now
