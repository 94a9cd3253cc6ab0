"""What the parts of one running forge share, and how a route reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request, Response

from agensh.clock import Clock
from agensh.embedded.forge.auth import Authenticator, Caller, Passwords
from agensh.embedded.forge.behind import Behind
from agensh.embedded.forge.errors import forbidden, unprocessable
from agensh.embedded.forge.events import EventHub
from agensh.embedded.forge.git import Git, Person
from agensh.embedded.forge.mergeability import Checker
from agensh.embedded.forge.settings import ForgeSettings
from agensh.embedded.forge.shapes import Shapes
from agensh.embedded.forge.store import repos
from agensh.embedded.forge.store.database import Database, Row, Tx
from agensh.embedded.forge.store.repos import Mode
from agensh.embedded.forge.tasks import Tasks

T = TypeVar("T")


class Locks:
    """One lock a key, forgotten when nobody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[object, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def holding(self, key: object) -> AsyncIterator[None]:
        """Hold the lock of `key`."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


class Forge:
    """One forge over one data folder."""

    def __init__(self, data: Path, clock: Clock, settings: ForgeSettings) -> None:
        self.data = data
        self.clock = clock
        self.settings = settings
        self.events = EventHub(self)
        self.db = Database(data / "forge.sqlite3", on_touched=self.events.touched, clock=clock)
        self.git = Git(timeout=settings.git_timeout, clock=clock)
        self.passwords = Passwords(settings.password_rounds)
        self.auth = Authenticator(self.db, self.passwords, clock)
        self.behind = Behind(clock, self.db.full)
        self.checker = Checker(self)
        self.locks = Locks()
        self.git_slots = asyncio.Semaphore(settings.git_processes)
        self.tasks = Tasks()

    def now(self) -> int:
        """Whole seconds since the epoch."""
        return int(self.clock.time())

    def path(self, owner: str, name: str) -> Path:
        """Where a repository is; the names are those of its rows, so they cannot point elsewhere."""
        return self.data / "repos" / owner / f"{name}.git"

    def person(self, user: Row) -> Person:
        """A user as author or committer, now."""
        return Person(user["full_name"] or user["name"], user["email"], self.now())


class Call:
    """One authenticated API request."""

    def __init__(self, forge: Forge, request: Request, response: Response, caller: Caller) -> None:
        self.forge = forge
        self.request = request
        self.response = response
        self.user = caller.user
        self.caller = caller
        self.base = str(request.base_url).rstrip("/")

    def shapes(self, tx: Tx) -> Shapes:
        """The answers of this call, within a transaction."""
        return Shapes(tx, self.base, self.forge.data, self.user)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run a read."""
        return await self.forge.db.read(work)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run a write."""
        return await self.forge.db.write(work)

    async def repo(self, owner: str, name: str, need: Mode = Mode.READ) -> tuple[Row, Path]:
        """Return a repository and its path, if the caller has the right; 404, 403, 423."""

        def find(tx: Tx) -> tuple[Row, Path]:
            repo = repos.require(tx, self.user, owner, name, need)
            return repo, self.shapes(tx).path(repo["id"])

        return self.forge.db.peek(find)

    def require_admin(self) -> None:
        """403 unless the caller administrates the site."""
        if not self.user["is_admin"]:
            raise forbidden("user should be the site admin")

    @property
    def page(self) -> int:
        """The page asked for, from 1."""
        return max(1, self.number("page", 1))

    @property
    def limit(self) -> int:
        """The rows of a page, capped."""
        settings = self.forge.settings
        asked = self.number("limit", settings.default_paging_num)
        return settings.default_paging_num if asked <= 0 else min(asked, settings.max_response_items)

    @property
    def offset(self) -> int:
        """The rows before the page."""
        return (self.page - 1) * self.limit

    def number(self, name: str, default: int) -> int:
        """A whole number of the query; 422 when it is none."""
        text = self.request.query_params.get(name, "")
        if not text:
            return default
        try:
            return int(text)
        except ValueError as error:
            raise unprocessable(f"{name}: {text!r} is not a whole number") from error

    def flag(self, name: str) -> bool | None:
        """A yes or no of the query, or None when it is not there."""
        text = self.request.query_params.get(name)
        return None if text is None else text.lower() in {"true", "1", "t"}

    def paged(self, total: int) -> None:
        """Say how many rows there are in all and where the other pages are."""
        last = max(1, -(-total // self.limit))
        pages = {"first": 1, "prev": self.page - 1} if self.page > 1 else {}
        if self.page < last:
            pages |= {"next": self.page + 1, "last": last}
        links = []
        for rel in ("next", "last", "first", "prev"):
            if rel in pages:
                url = self.request.url.include_query_params(page=pages[rel])
                links.append(f'<{self.base}{url.path}?{url.query}>; rel="{rel}"')
        if links:
            self.response.headers["Link"] = ",".join(links)
        self.response.headers["X-Total-Count"] = str(total)
        self.response.headers["Access-Control-Expose-Headers"] = "X-Total-Count, Link"

    def slice(self, rows: list[T]) -> list[T]:
        """The rows of the page asked for, of all there are."""
        self.paged(len(rows))
        return rows[self.offset : self.offset + self.limit]


def forge_of(request: Request) -> Forge:
    """Return the forge that serves a request."""
    return cast(Forge, request.app.state.forge)


async def _call(request: Request, response: Response) -> Call:
    forge = forge_of(request)
    return Call(forge, request, response, await forge.auth.api(request))


ApiCall = Annotated[Call, Depends(_call)]
"""The parameter of an API route: 401 unless the caller is known."""
Json = dict[str, Any]
