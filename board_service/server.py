"""Running the service: one uvicorn on the loopback address, stopped cleanly by SIGTERM or Ctrl-C."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI

from agensh.errors import UsageError
from board_service.app import create_app
from board_service.service import BoardService
from board_service.settings import BoardSettings

GRACE = 5  # seconds open requests may take after the signal; streams end at once


class BoardServer(uvicorn.Server):
    """Ends the streams first: uvicorn waits for open connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = self.config.app
        service: BoardService | None = getattr(app.state, "service", None) if isinstance(app, FastAPI) else None
        if service is not None:
            service.stop_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; UsageError when the port is taken or the address is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port: {host}:{port} cannot be used ({error.strerror}); choose another with --port."
        ) from None
    return listening


def new_server(app: FastAPI) -> BoardServer:
    """Return a server for `app`; run it with `serve(sockets=[listen(…)])`."""
    return BoardServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=75,
            server_header=False,
        )
    )


def serve(settings: BoardSettings) -> None:
    """Serve until SIGTERM or SIGINT; UsageError when the port is in use."""
    with listen(settings.host, settings.port) as listening:
        host, port = listening.getsockname()[:2]
        sys.stderr.write(f"board: http://{host}:{port}\n")
        new_server(create_app(settings)).run(sockets=[listening])
