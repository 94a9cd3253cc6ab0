"""Running the gateway: one uvicorn on the loopback address by default, stopped cleanly by SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agensh.clock import SystemClock
from agensh.db_setup import prepare
from agensh.gateway.app import Gateway, create_app
from agensh.gateway.tables import MIGRATIONS, VERSION_TABLE
from agensh.serving import BACKLOG, make_server, open_socket
from agensh.spec import GatewaySection


def serve(
    section: GatewaySection,
    credential: str,
    admin: str,
    database: str,
    host: str,
    port: int,
    *,
    run_id: str = "",
    announce: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until SIGTERM or SIGINT; AgenshError when the port is in use or the database cannot be used.

    `announce` is told the port once connections are taken.
    """
    with open_socket(host, port, "gateway") as listening:
        prepare(database, MIGRATIONS, version_table=VERSION_TABLE)  # here, where a failure is one sentence
        gateway = Gateway(section, credential, admin, database, SystemClock())
        # A cut answer is the provider's doing, and the exchange has said so; the server would call it an error of ours.
        logging.getLogger("uvicorn.error").addFilter(_not_about_cuts)
        listening.listen(BACKLOG)  # who is told connects at once, and waits for the rest of the start
        announce(listening.getsockname()[1])
        make_server(create_app(gateway, run_id), gateway.stop, ws="none").run(sockets=[listening])


def _not_about_cuts(record: logging.LogRecord) -> bool:
    return "without completing response" not in record.getMessage()
