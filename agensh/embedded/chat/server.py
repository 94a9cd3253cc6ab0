"""The chat as a process."""

from __future__ import annotations

import fcntl
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agensh.embedded.chat.app import create_app
from agensh.embedded.chat.routes.websocket import MESSAGE_LIMIT
from agensh.embedded.chat.settings import ChatSettings
from agensh.errors import UsageError
from agensh.serving import run_server

PORT = 8065
OPEN_FILES = 65_536
"""How many files the process may open, when the system lets it: each websocket is one, and 1,024 is a usual default."""
PING_EVERY = 60.0
"""Seconds between two protocol pings on a websocket."""
PONG_WITHIN = 40.0
"""Seconds the peer has for its pong: 100 s after the last one, only pongs count as life."""


def serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = PORT,
    admin: tuple[str, str] | None = None,
    settings: ChatSettings = ChatSettings(),
) -> None:
    """Serve the chat until SIGTERM or SIGINT (blocking).

    UsageError when the port is in use, or when another process serves the same folder: each keeps accounts in memory
    and would not see the other's.
    """
    raise_file_limit()
    with only_server_of(data):
        run_server(create_app(data, admin=admin, settings=settings), host, port, "chat", **uvicorn_options())


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as needed and allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextmanager
def only_server_of(data: Path) -> Iterator[None]:
    """Hold the folder's lock; UsageError when another process has it. The system drops it with the process."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "chat.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"data: another chat server is running over {data}; stop it or choose a folder."
            ) from error
        yield


def uvicorn_options() -> dict[str, Any]:
    """Return the settings of the server process: of websockets, and that the application dates its answers itself."""
    return {
        "date_header": False,
        "ws": "websockets-sansio",
        "ws_max_size": MESSAGE_LIMIT,
        "ws_ping_interval": PING_EVERY,
        "ws_ping_timeout": PONG_WITHIN,
        "ws_per_message_deflate": False,
    }
