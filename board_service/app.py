"""The application: routes, authentication before everything else, bounds, and one shape of error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import agensh
from agensh.clock import Clock, SystemClock
from agensh.db import DatabaseUnavailable, open_engine
from board_service.api import board, health, notes, pending, stream, tokens, workers
from board_service.auth import TokenBook
from board_service.database import database_url, prepare
from board_service.errors import Mistake, Refusal, refuse
from board_service.gate import Gate, answer, failed
from board_service.service import BoardService
from board_service.settings import BoardSettings
from board_service.store import Store


class BoardApp(FastAPI):
    """The application behind its gate, which stands before all middleware: most calls of a team end there."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._gate = Gate(super().__call__, _bug)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope["app"] = self
        await self._gate(scope, receive, send)


def create_app(settings: BoardSettings, *, clock: Clock | None = None) -> FastAPI:
    """Return the board service; its tables are brought up to date when it starts."""
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        url = database_url(settings)
        await asyncio.to_thread(prepare, url)
        engine = open_engine(url)
        try:
            book = TokenBook(engine, settings.admin_token.get_secret_value())
            service = BoardService(settings, Store(engine), book, clock)
            await service.store.check()
            await service.start()
            app.state.service = service
            try:
                yield
            finally:
                await service.aclose()
        finally:
            await engine.dispose()

    app = BoardApp(
        title="Agensh board",
        version=agensh.__version__,
        description="Short typed entries that a team of agents shares: append-only, searchable, streamed.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    bearer = [Depends(HTTPBearer(auto_error=False, description="A token made with `agensh board token`."))]
    app.include_router(health.open_router)
    for module in (health, notes, pending, tokens, stream, workers, board):
        app.include_router(module.router, dependencies=bearer)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SQLAlchemyError, _database_error)
    app.add_exception_handler(DatabaseUnavailable, _database_error)
    app.add_exception_handler(Exception, _bug)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return answer(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Refusal):  # the body broke a bound while the framework read it
        return answer(request, error.__cause__)
    if error.status_code == 400:  # the framework's word for a body it cannot parse
        return answer(request, refuse(422, "not_json", "body: it is not JSON; send an object."))
    texts = {404: f"There is no {request.url.path[:100]!a} here.", 405: f"{request.method} is not possible here."}
    text = texts.get(error.status_code, str(error.detail))
    response = answer(request, refuse(error.status_code, f"http_{error.status_code}", text))
    response.headers.update(error.headers or {})
    return response


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    mistakes = [
        # One code for all: a code is also a label of the metrics, and the names may be the sender's own.
        Mistake(
            "invalid", f"{str(item['loc'][-1])[:40]}: {ascii(item.get('input'))[:60]} is not possible: {item['msg']}."
        )
        for item in error.errors()
    ]
    return answer(request, Refusal(422, mistakes))


async def _bug(request: Request, error: Exception) -> Response:
    return answer(request, refuse(500, "internal", "The board made a mistake; its log says which."))


async def _database_error(request: Request, error: Exception) -> Response:
    return failed(request, error)
