"""`agensh gateway`: run the gateway on its own, and make and revoke its keys."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agensh.errors import UsageError

if TYPE_CHECKING:
    from agensh.gateway.ledger import Ledger

app = typer.Typer(no_args_is_help=True, help="The gateway to the model provider, on its own.")

ADMIN_VARIABLE = "AGENSH_GATEWAY_ADMIN_TOKEN"
Data = Annotated[Path, typer.Option("--data", envvar="AGENSH_GATEWAY_DATA", help="Data folder.")]
Db = Annotated[
    str,
    typer.Option("--db", envvar="AGENSH_GATEWAY_DB", help="Database URL instead of the folder.", show_default=False),
]
Worker = Annotated[str, typer.Argument(help="The worker's full name: <team>-worker<n>.")]
DATA = Path("gateway-data")


@app.command()
def serve(
    spec: Annotated[Path, typer.Argument(help="A team.toml with a gateway section.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 9000,
    host: Annotated[str, typer.Option("--host", help="Address.")] = "127.0.0.1",
    data: Data = DATA,
    db: Db = "",
) -> None:
    """Serve until Ctrl-C or SIGTERM. AGENSH_GATEWAY_ADMIN_TOKEN opens /usage and /keys."""
    from agensh.gateway.credential import read_credential
    from agensh.gateway.server import serve as run
    from agensh.logs import set_up_logging
    from agensh.spec import load_spec

    section = load_spec(spec).gateway
    if section is None:
        raise UsageError(f"{spec}: gateway: missing; `agensh gateway serve` needs that section.")
    credential = read_credential(section)
    set_up_logging()
    where = f"[{host}]" if ":" in host else host

    def announce(bound: int) -> None:
        sys.stderr.write(f"gateway: http://{where}:{bound}\n")
        sys.stderr.flush()

    run(section, credential, os.environ.get(ADMIN_VARIABLE, ""), _url(data, db), host, port, announce=announce)


@app.command()
def key(worker: Worker, data: Data = DATA, db: Db = "") -> None:
    """Make a key for a worker, straight in the database, and print it: it is not shown again. Restart the gateway."""
    from agensh.identity import parse_worker_name

    parse_worker_name(worker)

    async def make(ledger: Ledger) -> None:
        typer.echo(await ledger.new_key(worker))

    asyncio.run(_with_ledger(_url(data, db), make))


@app.command()
def revoke(worker: Worker, data: Data = DATA, db: Db = "") -> None:
    """Revoke the keys of a worker, straight in the database. Restart the gateway, or ask it: DELETE /keys/WORKER."""

    async def end(ledger: Ledger) -> None:
        if not await ledger.revoke(worker):
            raise UsageError(f"worker: {worker!r} has no key.")

    asyncio.run(_with_ledger(_url(data, db), end))


def _url(data: Path, db: str) -> str:
    from agensh.db_setup import given_url
    from agensh.urls import sqlite_url

    return given_url(db) if db else sqlite_url(data / "gateway.sqlite3")


async def _with_ledger(url: str, do: Callable[[Ledger], Awaitable[None]]) -> None:
    from agensh.clock import SystemClock
    from agensh.gateway.ledger import Ledger

    ledger = Ledger(url, SystemClock())
    try:
        await ledger.prepare()
        await do(ledger)
    finally:
        await ledger.dispose()
