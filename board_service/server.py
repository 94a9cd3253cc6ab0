"""Running the service: one uvicorn on the loopback address, stopped cleanly by SIGTERM or Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import socket
import sys

import uvicorn
from fastapi import FastAPI
from sqlalchemy import make_url

from agensh.bounded_http import BoundedProtocol
from agensh.errors import AgenshError
from agensh.serving import BACKLOG, keep_loaded, open_socket
from board_service.app import create_app
from board_service.database import database_url, prepare
from board_service.service import BoardService
from board_service.settings import BoardSettings

GRACE = 5  # seconds open requests may take after the signal; streams end at once


class BoardServer(uvicorn.Server):
    """Ends the streams first: uvicorn waits for open connections."""

    announcing = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        app = self.config.app
        if self.started and self.announcing and isinstance(app, FastAPI):
            keep_loaded()
            await self.announce(app.state.service, sockets or [])

    async def announce(self, service: BoardService, sockets: list[socket.socket]) -> None:
        """Tell the operator where the board answers, and how to get the first token."""
        settings = service.settings
        if not settings.admin_token.get_secret_value() and not await service.tokens.any_stored():
            where = f"--db '{_shown(settings.db)}'" if settings.db else f"--data {shlex.quote(settings.data)}"
            sys.stderr.write(f"board: nobody has a token yet; make one: agensh board token NAME {where}\n")
        for listening in sockets:
            host, port = listening.getsockname()[:2]
            sys.stderr.write(f"board: http://{f'[{host}]' if ':' in host else host}:{port}\n")
        sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        service: BoardService | None = getattr(app.state, "service", None) if isinstance(app, FastAPI) else None
        if service is not None:
            service.stop_streams()
        await super().shutdown(sockets)


def new_server(app: FastAPI) -> BoardServer:
    """Return a server for `app`; run it with `serve(sockets=[open_socket(…)])`."""
    return BoardServer(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=75,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
        )
    )


def serve(settings: BoardSettings) -> None:
    """Serve until SIGTERM or SIGINT; UsageError when the port is in use."""
    with open_socket(settings.host, settings.port, "board") as listening:
        prepare(database_url(settings))  # before the server starts, so that a bad database is one sentence
        server = new_server(create_app(settings))
        server.announcing = True
        # uvicorn stops on these signals and then raises them again; having stopped cleanly is a success.
        before = {number: signal.signal(number, _stopped) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            server.run(sockets=[listening])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if not server.started:
        raise AgenshError("The board service did not start; the lines above say why.")


def _stopped(_number: int, _frame: object) -> None:
    """Do nothing: the server has stopped already."""


def _shown(db: str) -> str:
    return make_url(db).render_as_string(hide_password=True)
