"""What the typed clients share: one httpx client with bounds, retries with full jitter, and errors of one kind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import httpx

from agensh.errors import ServiceError

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=16)
ATTEMPTS = 5
FIRST_WAIT = 0.25  # seconds
LONGEST_WAIT = 10.0  # seconds
RETRYABLE_STATUS = frozenset({429, 502, 503, 504})


def new_http_client(base_url: str, *, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Return a client for one service: bounded, no redirects, no proxy from the environment, cookies ignored."""
    return httpx.AsyncClient(
        base_url=base_url, headers=headers, timeout=TIMEOUT, limits=LIMITS, trust_env=False, follow_redirects=False
    )


def backoff(attempt: int) -> float:
    """Return a wait in seconds with full jitter: many clients that fail together do not come back together."""
    return random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**attempt))


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds a service asked to wait (`Retry-After`, or `X-RateLimit-Reset` as seconds), when it did."""
    for header in ("retry-after", "x-ratelimit-reset"):
        value = response.headers.get(header, "")
        if value.replace(".", "", 1).isdigit():
            seconds = float(value)
            return seconds if seconds < 86_400 else None
    return None


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
    connection, 502 to 504) only an `idempotent` one is, for it may have taken effect.
    """
    attempt = 0
    while True:
        try:
            response = await client.request(method, url, **arguments)
        except httpx.TransportError as error:
            again = idempotent or isinstance(error, httpx.ConnectError | httpx.PoolTimeout)
            failure = ServiceError(service, 0, f"{type(error).__name__} at {method} {url}", retryable=again)
            cause: Exception | None = error
        else:
            if response.status_code in expect:
                return response
            text = describe(response) if describe else response.text[:500]
            again = response.status_code == 429 or (idempotent and response.status_code in RETRYABLE_STATUS)
            failure = ServiceError(
                service, response.status_code, text, retryable=again, retry_after=retry_after(response)
            )
            cause = None
        attempt += 1
        if not again or attempt >= ATTEMPTS:
            raise failure from cause
        wait = backoff(attempt)
        await sleep(wait if failure.retry_after is None else min(failure.retry_after, LONGEST_WAIT) + wait)
