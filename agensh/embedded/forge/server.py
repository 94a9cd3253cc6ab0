"""The forge as a process."""

from __future__ import annotations

from pathlib import Path

from agensh.embedded.forge.app import create_app
from agensh.embedded.forge.settings import ForgeSettings
from agensh.serving import run_server


def serve(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 3000,
    admin: tuple[str, str] | None = None,
    settings: ForgeSettings | None = None,
) -> None:
    """Run the forge over `data` until SIGTERM (blocking); UsageError when the port is in use."""
    app = create_app(data, admin=admin, settings=settings)
    run_server(app, host, port, "forge", on_stop=app.state.forge.events.close)
