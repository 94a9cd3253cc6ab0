"""The forge's push channel: server-sent events of `/user/events` (Gitea up to 1.27).

Only a wake-up. Events carry counts and no ids, may be dropped, and nothing is replayed: after every signal and every
connect the notifications must be read. The route takes a session cookie only (no token), so the stream logs in with
name and password; an unauthenticated stream is not a 401 but a 200 that says `close` and ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Literal, Self

import httpx

from agensh.clients.http import TIMEOUT, lines_of, new_http_client, retry_after
from agensh.errors import ServiceError

SERVICE = "The forge's event stream"
SILENCE = 75.0  # seconds; the server sends a ping every 30
OPEN_TIMEOUT = 30.0  # seconds for a login, and for the answer to the opening
LONGEST_LINE = 1_000_000  # characters


@dataclass(frozen=True, slots=True)
class ForgeSignal:
    """Something was pushed."""

    kind: Literal["notification", "ping", "closed"]
    """`closed`: the session is not valid (any more); the next `connect` logs in anew."""
    count: int = 0
    """Unread threads; 0 is sent as well, and marking a thread read echoes here."""


class GiteaEventStream:
    """One account's event stream. `connect`, then iterate; the iteration ends with ServiceError when it is cut."""

    def __init__(self, url: str, name: str, password: str, *, http: httpx.AsyncClient | None = None) -> None:
        self.url = url.rstrip("/")
        self._name = name
        self._password = password
        self._http = http or new_http_client(limits=httpx.Limits(max_connections=2, max_keepalive_connections=1))
        self._owns_http = http is None
        self._cookie = ""
        self._response: httpx.Response | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the stream and, if it is this object's own, the client."""
        await self.disconnect()
        if self._owns_http:
            await self._http.aclose()

    async def disconnect(self) -> None:
        """Close the stream; `connect` may be called again."""
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def connect(self) -> None:
        """Log in where there is no session, and open the stream; ServiceError (401 for a wrong password)."""
        await self.disconnect()
        if not self._cookie:
            await self._log_in()
        request = self._http.build_request(
            "GET",
            f"{self.url}/user/events",
            headers={"Cookie": self._cookie, "Accept": "text/event-stream", "Cache-Control": "no-cache"},
            timeout=httpx.Timeout(TIMEOUT.read, connect=TIMEOUT.connect, read=SILENCE),
        )
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                response = await self._http.send(request, stream=True)
        except (httpx.RequestError, TimeoutError) as error:
            raise ServiceError(SERVICE, 0, f"{type(error).__name__} at the opening", retryable=True) from error
        if response.status_code != 200:
            await response.aclose()
            if response.status_code in {301, 302, 303, 401, 403}:
                self._cookie = ""
            raise ServiceError(
                SERVICE,
                response.status_code,
                "it cannot be opened",
                retryable=True,
                retry_after=retry_after(response.headers),
            )
        self._response = response

    async def _log_in(self) -> None:
        form = {"user_name": self._name, "password": self._password}
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                response = await self._http.post(f"{self.url}/user/login", data=form)
        except (httpx.RequestError, TimeoutError) as error:
            raise ServiceError(SERVICE, 0, f"{type(error).__name__} at the login", retryable=True) from error
        if response.status_code == 429 or response.status_code >= 500:
            raise ServiceError(
                SERVICE,
                response.status_code,
                "the login failed",
                retryable=True,
                retry_after=retry_after(response.headers),
            )
        if response.status_code not in {302, 303}:
            # Wrong credentials re-render the form with status 200.
            raise ServiceError(SERVICE, 401, f"the forge does not accept the password of {self._name!r}")
        if "change_password" in response.headers.get("location", ""):
            raise ServiceError(SERVICE, 403, f"the forge wants {self._name!r} to change the password first")
        self._cookie = _cookies(response)
        if not self._cookie:
            raise ServiceError(SERVICE, response.status_code, "the login set no session cookie")

    async def signals(self) -> AsyncGenerator[ForgeSignal, None]:
        """Yield what is pushed; ServiceError at the end of the stream, or after 75 s of silence."""
        response = self._response
        if response is None:
            raise ServiceError(SERVICE, 0, "it is not connected", retryable=True)
        event, data = "", ""
        try:
            async with aclosing(lines_of(response, silence=SILENCE)) as lines:
                async for line in lines:
                    if len(line) > LONGEST_LINE:
                        raise ServiceError(SERVICE, 200, "a line is too long", retryable=True)
                    field, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    if field == "event":
                        event = value
                    elif field == "data":
                        data = value
                    elif not line and event:
                        # A ping has no data, so a parser that follows the letter of the standard would drop it.
                        signal = self._read(event, data)
                        event, data = "", ""
                        if signal is not None:
                            yield signal
        except (httpx.ReadTimeout, TimeoutError) as error:
            raise ServiceError(SERVICE, 0, f"nothing came for {SILENCE:g} s", retryable=True) from error
        except (httpx.RequestError, httpx.StreamError) as error:
            raise ServiceError(SERVICE, 0, type(error).__name__, retryable=True) from error
        raise ServiceError(SERVICE, 0, "it ended", retryable=True)

    def __aiter__(self) -> AsyncGenerator[ForgeSignal, None]:
        return self.signals()

    def _read(self, event: str, data: str) -> ForgeSignal | None:
        if event == "ping":
            return ForgeSignal("ping")
        if event in {"close", "logout"}:
            self._cookie = ""
            return ForgeSignal("closed")
        if event == "notification-count":
            try:
                count = int(json.loads(data).get("Count", 0))
            except (ValueError, AttributeError, TypeError):
                count = 0
            return ForgeSignal("notification", count)
        return None


def _cookies(response: httpx.Response) -> str:
    jar: SimpleCookie = SimpleCookie()
    for header in response.headers.get_list("set-cookie"):
        try:
            jar.load(header)
        except CookieError:
            continue
    return "; ".join(f"{name}={morsel.value}" for name, morsel in jar.items() if morsel.value)
