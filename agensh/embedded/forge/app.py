"""The assembly of the forge: state, lifespan, routes, the shape of errors."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agensh.clock import Clock, SystemClock
from agensh.embedded.forge import http_backend, maintenance, sync
from agensh.embedded.forge.errors import ApiError
from agensh.embedded.forge.git import GitError
from agensh.embedded.forge.routes import ROUTERS
from agensh.embedded.forge.settings import ForgeSettings
from agensh.embedded.forge.state import Forge
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Tx
from agensh.embedded.forge.tasks import supervise
from agensh.outage import no_room

log = logging.getLogger(__name__)

NOTHING_KEPT = "The forge could not read or write its data; nothing of this request was kept."


def create_app(
    data: Path,
    *,
    clock: Clock | None = None,
    admin: tuple[str, str] | None = None,
    settings: ForgeSettings | None = None,
) -> FastAPI:
    """Return the forge over a data folder; it opens when the server starts the application's lifespan.

    `admin` is a name and a password: a site administrator created when there is no such user.
    """
    app = FastAPI(
        title="Agensh forge",
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.forge = Forge(data, clock or SystemClock(), settings or ForgeSettings())
    app.state.admin = admin
    for router in (*ROUTERS, http_backend.router):
        app.include_router(router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(GitError, _git_error)
    app.add_exception_handler(sqlite3.Error, _store_error)
    app.add_exception_handler(OSError, _system_error)
    app.add_exception_handler(Exception, _unexpected)
    app.add_exception_handler(UnicodeEncodeError, _bad_text)
    app.add_exception_handler(OverflowError, _bad_number)
    app.add_middleware(BodyLimit, limit=app.state.forge.settings.max_body)
    return app


class BodyLimit:
    """Answers 413 to an API request whose body is larger than the limit; git's own bodies are streamed."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].split("/")[-1].startswith("git-"):
            await self._app(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise HTTPException(413, f"the body is larger than {self._limit} bytes")
            return message

        await self._app(scope, counted, send)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    forge: Forge = app.state.forge
    await asyncio.to_thread(forge.db.open)
    try:
        if app.state.admin is not None:
            await _ensure_admin(forge, *app.state.admin)
        await sync.reconcile(forge)
        for path in await forge.db.read(lambda tx: _paths(tx, forge)):
            await asyncio.to_thread(http_backend.prepare, path)
        async with asyncio.TaskGroup() as loops:
            background = [
                loops.create_task(supervise("conflict checks", forge.checker.run, forge.clock)),
                loops.create_task(supervise("rows behind their refs", forge.behind.run, forge.clock)),
                loops.create_task(supervise("locks", forge.git.leftovers.run, forge.clock)),
                loops.create_task(supervise("events", forge.events.run, forge.clock)),
                loops.create_task(supervise("maintenance", partial(maintenance.run, forge), forge.clock)),
            ]
            yield
            forge.events.close()
            await forge.tasks.drain()
            for task in background:
                task.cancel()
    finally:
        await asyncio.to_thread(forge.db.close)


def _paths(tx: Tx, forge: Forge) -> list[Path]:
    rows = tx.all("SELECT u.name AS owner, r.name FROM repos r JOIN users u ON u.id = r.owner_id")
    return [forge.path(row["owner"], row["name"]) for row in rows]


async def _ensure_admin(forge: Forge, name: str, password: str) -> None:
    if await forge.db.read(lambda tx: users.by_name(tx, name)) is not None:
        return
    stored = await forge.passwords.hash(password)
    await forge.db.write(
        lambda tx: users.create(
            tx, forge.now(), name, f"{name}@localhost", stored, is_admin=True, must_change_password=False
        )
    )


def _answer(request: Request, status: int, message: str, **fields: object) -> JSONResponse:
    url = f"{str(request.base_url).rstrip('/')}/api/swagger"
    return JSONResponse({"message": message, "url": url, **fields}, status)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return _answer(request, error.status, error.message, **error.fields)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return _answer(request, 422, f"[{where}]: {first['msg']}")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    message = "The target couldn't be found." if error.status_code == 404 else str(error.detail)
    return _answer(request, error.status_code, message)


async def _git_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, GitError) and error.no_room:
        return _full(request, error)
    log.error("git failed", extra={"path": request.url.path, "error": str(error)})
    return _answer(request, 500, str(error))


async def _system_error(request: Request, error: Exception) -> JSONResponse:
    if no_room(error):
        return _full(request, error)
    log.error("request failed", exc_info=error, extra={"path": request.url.path})
    return await _unexpected(request, error)


def _full(request: Request, error: Exception) -> JSONResponse:
    forge: Forge = request.app.state.forge
    forge.db.full(error)
    return _answer(request, 500, NOTHING_KEPT)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 500, "The forge failed at this request; its log has the reason.")


async def _bad_text(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 422, "a text of the request holds a lone surrogate, which is no character")


async def _bad_number(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 422, "a number of the request is out of range")


async def _store_error(request: Request, error: Exception) -> JSONResponse:
    # That the disk is full was said by the store, once.
    level = logging.DEBUG if no_room(error) else logging.ERROR
    log.log(level, "the store failed", extra={"path": request.url.path, "error": str(error)})
    return _answer(request, 500, NOTHING_KEPT)
