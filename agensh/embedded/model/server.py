"""The scripted model as a process."""

from __future__ import annotations

from pathlib import Path

from agensh.clock import SystemClock
from agensh.embedded.model.app import ScriptedModel
from agensh.embedded.model.team import Team
from agensh.serving import run_server


def serve(playbook: Path, folder: Path, host: str, port: int, key: str = "") -> None:
    """Serve the model that plays the work cycle until SIGTERM or SIGINT (blocking).

    `folder` keeps what each worker's mind remembers. With a `key` nobody is answered who does not send it. UsageError
    when the port is in use.
    """
    app = ScriptedModel(Team(playbook, folder, SystemClock()), key=key)
    run_server(app, host, port, "model", on_stop=app.close)
