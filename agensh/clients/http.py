"""What the typed clients share: one httpx client with bounds, retries with full jitter, and errors of one kind."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from agensh.errors import ServiceError

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
LONGEST_ANSWER = 120.0  # seconds; TIMEOUT bounds each wait, and a server that sends byte by byte keeps within that
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=16)
ATTEMPTS = 5
FIRST_WAIT = 0.25  # seconds
LONGEST_WAIT = 10.0  # seconds
LONGEST_RETRY_AFTER = 60.0  # seconds; a service that asks for more gets its answer from the caller
LONGEST_WISH = 86_400.0  # seconds; whoever asks for a longer wait has a wrong clock
RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
"""500 as well: both forge and chat answer it for a database that was locked for a moment."""


@cache
def _tls() -> ssl.SSLContext:
    # One for the process: building one reads all certificates (about 20 ms), and a node host has hundreds of clients.
    return httpx.create_ssl_context(trust_env=False)


def no_cookies() -> CookieJar:
    """Return a jar that accepts nothing: a session cookie beats the token, and then the chat asks for a CSRF header."""
    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def new_http_client(
    base_url: str = "", *, headers: Mapping[str, str] | None = None, limits: httpx.Limits = LIMITS
) -> httpx.AsyncClient:
    """Return a client for one service: bounded, no redirects, no proxy from the environment, cookies refused.

    Many accounts may share one: the typed clients send their token with every request.
    """
    return httpx.AsyncClient(
        base_url=base_url,
        headers=headers,
        cookies=no_cookies(),
        timeout=TIMEOUT,
        limits=limits,
        trust_env=False,
        follow_redirects=False,
        verify=_tls(),
    )


def backoff(attempt: int, *, first: float = FIRST_WAIT, longest: float = LONGEST_WAIT) -> float:
    """Return a wait in seconds with full jitter: many clients that fail together do not come back together."""
    return random.uniform(0, min(longest, first * 2 ** min(attempt, 32)))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a service asked to wait, when its answer's headers say so.

    Reads `Retry-After` (seconds, or a date, which counts from the answer's own `Date`, or else from now) and
    `X-RateLimit-Reset`.
    """
    for header in ("retry-after", "x-ratelimit-reset"):
        value = headers.get(header, "").strip()
        seconds: float | None = None
        if value.isascii() and value.replace(".", "", 1).isdigit():
            seconds = float(value)
        elif header == "retry-after" and value:
            try:
                date = headers.get("date")
                now = parsedate_to_datetime(date) if date else datetime.now(UTC)
                seconds = max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
            except (ValueError, TypeError):
                continue
        if seconds is not None and seconds < LONGEST_WISH:
            return seconds
    return None


def read_json(response: httpx.Response, service: str) -> Any:
    """Return the JSON of a response; ServiceError when it holds none (a proxy's page, a wrong address)."""
    try:
        return response.json()
    except ValueError as error:
        raise ServiceError(service, response.status_code, "the answer is not JSON; is the address right?") from error


def unsure(error: ServiceError) -> bool:
    """Say whether a failed request may have taken effect all the same: no answer came, or a 5xx."""
    return error.status == 0 or error.status >= 500


async def send(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    service: str,
    idempotent: bool,
    expect: Collection[int] = (200, 201, 204),
    describe: Callable[[httpx.Response], str] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **arguments: Any,
) -> httpx.Response:
    """Send a request and return its response when the status is in `expect`; ServiceError otherwise.

    A request that did not leave (no connection) or met 429 is sent again; after any other failure (time-out, cut
    connection, 502 to 504) only an `idempotent` one is, for it may have taken effect. An answer that takes longer than
    `LONGEST_ANSWER` counts as none.
    """
    attempt = 0
    while True:
        try:
            async with asyncio.timeout(LONGEST_ANSWER):
                response = await client.request(method, url, **arguments)
        except (httpx.RequestError, TimeoutError) as error:
            again = idempotent or isinstance(error, httpx.ConnectError | httpx.PoolTimeout)
            failure = ServiceError(service, 0, f"{type(error).__name__} at {method} {url}", retryable=again)
            cause: Exception | None = error
        else:
            if response.status_code in expect:
                return response
            text = describe(response) if describe else response.text[:500]
            again = response.status_code == 429 or (idempotent and response.status_code in RETRYABLE_STATUS)
            failure = ServiceError(
                service, response.status_code, text, retryable=again, retry_after=retry_after(response.headers)
            )
            cause = None
        asked = failure.retry_after or 0.0
        if not again or attempt + 1 >= ATTEMPTS or asked > LONGEST_RETRY_AFTER:
            raise failure from cause
        await sleep(asked + backoff(attempt))
        attempt += 1


async def lines_of(response: httpx.Response, *, silence: float) -> AsyncGenerator[str, None]:
    """Yield the lines of a stream; TimeoutError when no end of a line comes within `silence` seconds of waiting.

    The client's own time limit starts anew with every byte, so a peer that sends a byte now and then escapes it.
    """
    pieces = aiter(response.aiter_text())
    clock = asyncio.get_running_loop().time
    rest, left = "", silence
    while True:
        began = clock()
        try:
            async with asyncio.timeout(left):
                piece = await anext(pieces)
        except StopAsyncIteration:
            break
        *lines, rest = (rest + piece).split("\n")
        # Counted while we wait only: what the consumer does with a line is no silence of the peer's.
        left = silence if lines else left - (clock() - began)
        for line in lines:
            yield line.removesuffix("\r")
    if rest:
        yield rest
