"""`agensh model`: the scripted model on its own, as the provider of any team."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

KEY_VARIABLE = "AGENSH_SCRIPTED_KEY"


def model(
    playbook: Annotated[Path, typer.Argument(help="The folder of a playbook, e.g. examples/textutils/playbook.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port.")] = 9001,
    host: Annotated[str, typer.Option("--host", help="Address.")] = "127.0.0.1",
    data: Annotated[Path, typer.Option("--data", help="Folder for what each worker's mind remembers.")] = Path(
        "model-data"
    ),
) -> None:
    """Serve a scripted model in a provider's place until Ctrl-C or SIGTERM, to try a team of real CLIs without a key.

    With AGENSH_SCRIPTED_KEY in the environment it answers nobody who does not send that key.
    """
    from agensh.embedded.model.server import serve
    from agensh.logs import set_up_logging

    set_up_logging()
    serve(playbook, data, host, port, os.environ.get(KEY_VARIABLE, ""))
