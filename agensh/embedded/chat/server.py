"""The chat as a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agensh.embedded.chat.app import create_app
from agensh.embedded.chat.routes.websocket import MESSAGE_LIMIT
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.serving import run_server

PORT = 8065
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
    """Serve the chat until SIGTERM or SIGINT (blocking); UsageError when the port is in use."""
    run_server(create_app(data, admin=admin, settings=settings), host, port, "chat", **uvicorn_options())


def uvicorn_options() -> dict[str, Any]:
    """Return the websocket settings of the server process."""
    return {
        "ws": "websockets-sansio",
        "ws_max_size": MESSAGE_LIMIT,
        "ws_ping_interval": PING_EVERY,
        "ws_ping_timeout": PONG_WITHIN,
        "ws_per_message_deflate": False,
    }
