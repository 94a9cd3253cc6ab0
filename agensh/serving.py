"""Run one embedded server: a socket bound first (so a taken port is a clear error), then uvicorn until SIGTERM."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from agensh.bounded_http import BoundedProtocol
from agensh.errors import UsageError

GRACE = 3.0  # seconds that requests under way get after SIGTERM
GC_THRESHOLDS = (10_000, 20, 100)
"""New objects before a pass over them, and how many of those before one over the older ones, and of these over all."""
BACKLOG = 2048  # connections; 1,024 clients may reconnect at once


def open_socket(host: str, port: int, name: str) -> socket.socket:
    """Return a bound socket; port 0 takes a free one. UsageError names a port that is in use or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol spelled out: asyncio sets TCP_NODELAY on accepted connections only then, and without it every
    # answer waits 40 ms for the peer's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            reason = "is already in use by another process; stop that process or choose another port"
        else:
            reason = f"cannot be used ({error.strerror}); choose another host or port"
        raise UsageError(f"port: {port} on {host} {reason} for the {name}.") from error
    except OverflowError as error:
        sock.close()
        raise UsageError(f"port: {port} is not a port number for the {name}; allowed are 0 to 65535.") from error
    sock.set_inheritable(True)
    return sock


def keep_loaded() -> None:
    """Take all there is out of the garbage collector's sight (blocking): call it when what is loaded is there to stay.

    Left in its sight, a full pass looks through all of it again and again, and no request is answered meanwhile: for
    70 ms in a service, for most of a second in a node host with 500 workers. For the same reason what comes later is
    looked through rarely: by default a pass over all of it comes every few seconds where connections come and go.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class StoppableServer(uvicorn.Server):
    """uvicorn, which tells the application when the stop begins so that open streams can end by themselves."""

    own_process = False
    """The process is there for this server alone."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.own_process:
            keep_loaded()

    def stop(self) -> None:
        """Begin the stop; callable from any thread."""
        self.should_exit = True
        if self._loop is not None and self._on_stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_stop)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        # The process was asked to stop and does: uvicorn would raise the signal again and turn a clean stop into -15.
        self._captured_signals = [s for s in self._captured_signals if s != signal.SIGTERM]
        self.stop()


def make_server(app: ASGIApp, on_stop: Callable[[], None] | None = None, **options: Any) -> StoppableServer:
    """Return the server of an application, not yet running; `serve(sockets=[…])` runs it.

    `options` are further settings of uvicorn.
    """
    config = uvicorn.Config(
        app,
        lifespan="on",
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(GRACE),
        **options,
    )
    return StoppableServer(config, on_stop)


def run_server(
    app: ASGIApp, host: str, port: int, name: str, *, on_stop: Callable[[], None] | None = None, **options: Any
) -> None:
    """Serve `app` until SIGTERM or Ctrl-C (blocking).

    `name` is what the user calls the service, for the message about a port in use. `on_stop` runs in the event loop
    when the stop begins: close long-lived streams there, or they hold the stop up for `GRACE` seconds. `options` are
    further settings of uvicorn.
    """
    sock = open_socket(host, port, name)
    try:
        server = make_server(app, on_stop, **options)
        server.own_process = True
        server.run(sockets=[sock])
    finally:
        sock.close()
