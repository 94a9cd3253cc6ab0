"""The board service over HTTP, on SQLite and on MariaDB."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from agensh.clock import Clock
from board_service.service import BoardService
from board_service.settings import BoardSettings
from tests.support.board_server import RunningBoard, serving_board

ADMIN = "test-admin-token"


class Api:
    """A running board and plain HTTP to it."""

    def __init__(self, board: RunningBoard, service: BoardService, http: httpx.AsyncClient) -> None:
        self.board = board
        self.service = service
        self.http = http
        self.url = board.url
        self._tokens: dict[str, str] = {"admin": ADMIN}

    async def auth(self, who: str, role: str = "worker") -> dict[str, str]:
        """Return the header of `who`, whose token is made at the first use."""
        if who not in self._tokens:
            body = {"worker": who, "board": "main", "role": role}
            made = await self.http.post("/tokens", json=body, headers={"Authorization": f"Bearer {ADMIN}"})
            assert made.status_code == 201
            self._tokens[who] = made.json()["token"]
        return {"Authorization": f"Bearer {self._tokens[who]}"}

    async def get(self, path: str, who: str = "w1", **params: Any) -> httpx.Response:
        return await self.http.get(path, params=params, headers=await self.auth(who))

    async def post(self, path: str, who: str = "w1", **arguments: Any) -> httpx.Response:
        headers = await self.auth(who) | arguments.pop("headers", {})
        return await self.http.post(path, headers=headers, **arguments)

    async def note(
        self, type_: str, content: str, detail: str = "", *, who: str = "w1", key: str | None = None
    ) -> dict[str, Any]:
        """Write a note that is admitted."""
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"type": type_, "content": content, "detail": detail}
        answer = await self.post("/board/main/note", who, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    async def labels(self, path: str = "/board/main", who: str = "w1", **params: Any) -> list[str]:
        """Return the labels of a list of entries."""
        answer = await self.get(path, who, **params)
        assert answer.status_code == 200, answer.text
        return [entry["label"] for entry in answer.json()["entries"]]


@pytest.fixture(params=["sqlite", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'board.sqlite3'}"
    return str(request.getfixturevalue("mariadb_server").new_database())


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait until `condition` holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        for wait in itertools.repeat(0.02):
            if await condition():
                return
            await asyncio.sleep(wait)


Serve = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def serve(database: str) -> Serve:
    """Start a service on the database: `async with serve(clock=…, claim_seconds=…) as api`."""

    @asynccontextmanager
    async def start(clock: Clock | None = None, send_buffer: int | None = None, **settings: Any) -> AsyncIterator[Api]:
        values: dict[str, Any] = {"db": database, "admin_token": SecretStr(ADMIN)} | settings
        async with (
            serving_board(BoardSettings(**values), clock=clock, send_buffer=send_buffer) as (board, service),
            httpx.AsyncClient(base_url=board.url, trust_env=False, timeout=30) as http,
        ):
            yield Api(board, service, http)

    return start


@pytest.fixture
async def api(serve: Serve) -> AsyncIterator[Api]:
    """A service with the default settings."""
    async with serve() as running:
        yield running
