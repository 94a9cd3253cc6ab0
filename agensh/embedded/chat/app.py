"""The chat as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import WebSocketRoute

from agensh.clock import Clock, SystemClock
from agensh.embedded.chat import accounts
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.context import answer
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.errors import ChatError, no_such_page
from agensh.embedded.chat.hub import Hub
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.middleware import RateLimit, RequestId
from agensh.embedded.chat.routes import bots, channels, posts, system, teams, users
from agensh.embedded.chat.routes.websocket import websocket
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.chat.store import Store, check_version
from agensh.outage import no_room

log = logging.getLogger(__name__)
DATABASE = "chat.sqlite3"
API = "/api/v4"


def create_app(
    data: Path,
    *,
    clock: Clock = SystemClock(),
    admin: tuple[str, str] | None = None,
    settings: ChatSettings = ChatSettings(),
) -> FastAPI:
    """Return the chat over the folder `data` (made when missing).

    `admin` is name and password of an account that is created as system admin when it is missing. The database is open
    while the application's lifespan runs. UsageError when the folder holds something else.
    """
    check_version(data / DATABASE)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = Store(data / DATABASE, clock)
        try:
            directory = Directory.load(store)
            chat = Chat(store, directory, Hub(directory, clock), clock, settings)
            app.state.chat = chat
            if admin is not None:
                await accounts.ensure_admin(chat, *admin)
            reaper = asyncio.create_task(chat.hub.run_reaper(), name="chat-reaper")
            try:
                yield
            finally:
                reaper.cancel()
                await asyncio.gather(reaper, return_exceptions=True)
        finally:
            store.close()

    app = FastAPI(
        title="Agensh chat", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.router.routes.append(WebSocketRoute(f"{API}/websocket", websocket))
    for module in (system, bots, teams, channels, posts, users):
        app.include_router(module.router, prefix=API)
    app.add_exception_handler(ChatError, _chat_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(sqlite3.Error, _store_error)
    app.add_exception_handler(Exception, _server_error)
    app.add_middleware(RateLimit, settings=settings, clock=clock)
    app.add_middleware(RequestId)
    return app


def _request_id(request: Request) -> str:
    return str(request.scope.get("chat_request_id") or new_id())


async def _chat_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ChatError)
    return answer(error.shape(_request_id(request)), error.status)


async def _http_error(request: Request, error: Exception) -> Response:
    return answer(no_such_page().shape(_request_id(request)), 404)


async def _server_error(request: Request, error: Exception) -> Response:
    request_id = _request_id(request)
    log.error("request failed", exc_info=error, extra={"request_id": request_id, "path": request.url.path})
    return _internal_error(request_id)


async def _store_error(request: Request, error: Exception) -> Response:
    request_id = _request_id(request)
    # That the disk is full was said by the store, once.
    level = logging.DEBUG if no_room(error) else logging.ERROR
    log.log(level, "the store failed", extra={"request_id": request_id, "path": request.url.path, "error": str(error)})
    return _internal_error(request_id)


def _internal_error(request_id: str) -> Response:
    failure = ChatError(500, "api.context.internal_error.app_error", "An internal error occurred.")
    return answer(failure.shape(request_id), 500)
