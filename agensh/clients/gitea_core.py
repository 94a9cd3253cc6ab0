"""Requests to the forge: authentication, errors, pages, and creates that are repeated with care."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Self, TypeVar

import httpx

from agensh.clients.gitea_models import User
from agensh.clients.http import backoff, new_http_client, read_json, send, unsure
from agensh.clock import Clock, SystemClock
from agensh.errors import ServiceError

T = TypeVar("T")

SERVICE = "The forge"
PAGE = 50  # Gitea's [api] MAX_RESPONSE_ITEMS
MOST_PAGES = 200
CREATE_ATTEMPTS = 4


def describe(response: httpx.Response) -> str:
    """Return the forge's own words for an error."""
    try:
        value = response.json()
    except ValueError:
        return response.text[:500].strip() or response.reason_phrase
    if not isinstance(value, dict):
        return str(value)[:500]
    parts = [str(value.get("message") or "").strip(), *(str(item) for item in value.get("errors") or ())]
    return "; ".join(part for part in parts if part)[:1000] or str(value)[:500]


class GiteaCore:
    """One account's authenticated access to `/api/v1`."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        basic: tuple[str, str] | None = None,
        http: httpx.AsyncClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`basic` is needed to mint tokens only: the forge hashes the password anew with every such request.

        `http` may be shared between accounts (it carries no cookies); without it the client opens and closes its own.
        """
        self.url = url.rstrip("/")
        self.clock = clock or SystemClock()
        self._http = http or new_http_client()
        self._owns_http = http is None
        if basic is not None:
            encoded = base64.b64encode(f"{basic[0]}:{basic[1]}".encode()).decode()
            self._headers = {"Authorization": f"Basic {encoded}"}
        else:
            self._headers = {"Authorization": f"token {token}"} if token else {}
        self._me: User | None = None
        self._creating = asyncio.Lock()
        self._created: deque[tuple[str, int]] = deque(maxlen=256)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, if they are this client's own."""
        if self._owns_http:
            await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        idempotent: bool | None = None,
        expect: Collection[int] = (200, 201, 202, 204, 205),
        **arguments: Any,
    ) -> httpx.Response:
        """Send one request below `/api/v1`; ServiceError for every status that is not expected."""
        return await send(
            self._http,
            method,
            f"{self.url}/api/v1{path}",
            service=SERVICE,
            idempotent=method in {"GET", "PUT", "DELETE"} if idempotent is None else idempotent,
            expect=expect,
            describe=describe,
            sleep=self.clock.sleep,
            headers=self._headers,
            **arguments,
        )

    async def get(self, path: str, **arguments: Any) -> Any:
        """Return the JSON of a GET."""
        return read_json(await self.request("GET", path, **arguments), SERVICE)

    async def get_pages(
        self, path: str, *, params: Mapping[str, Any] | None = None, most: int | None = None, first_page: int = 1
    ) -> list[Any]:
        """Return the items of a paged listing, at most `most` of them."""
        items: list[Any] = []
        size = PAGE if most is None else max(1, min(PAGE, most))
        for page in range(first_page, first_page + MOST_PAGES):
            response = await self.request("GET", path, params={**(params or {}), "page": page, "limit": size})
            got = read_json(response, SERVICE) or []
            items += got
            total = response.headers.get("x-total-count", "")
            # The server may cap a page below what was asked for, so a short page ends the listing only without a total.
            complete = len(items) + (first_page - 1) * size >= int(total) if total.isdigit() else len(got) < size
            if not got or complete or (most is not None and len(items) >= most):
                break
        return items if most is None else items[:most]

    async def me(self) -> User:
        """Return the account whose token this is."""
        if self._me is None:
            self._me = User.of(await self.get("/user"))
        return self._me

    async def version(self) -> str:
        """Return the forge's version."""
        return str((await self.get("/version"))["version"])

    async def create(
        self,
        kind: str,
        post: Callable[[], Awaitable[T]],
        find: Callable[[], Awaitable[T | None]],
        number: Callable[[T], int],
    ) -> T:
        """Create something once.

        A create is not idempotent on the forge: after a time-out or a 5xx the thing may exist, so it is looked for
        before the request is sent again. One create at a time an account, or two equal ones could find each other.
        """
        async with self._creating:
            for attempt in range(CREATE_ATTEMPTS):
                try:
                    made = await post()
                except ServiceError as error:
                    if not unsure(error) or attempt + 1 == CREATE_ATTEMPTS:
                        raise
                    await self.clock.sleep(backoff(attempt))
                    found = await find()
                    if found is None:
                        continue
                    made = found
                self._created.append((kind, number(made)))
                return made
        raise AssertionError("unreachable: the last attempt returns or raises")

    def is_mine(self, kind: str, number: int) -> bool:
        """Say whether this client created that thing by an earlier call (so it is not the one being looked for)."""
        return (kind, number) in self._created
