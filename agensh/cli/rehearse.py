"""`agensh rehearse`: the coordination of a whole team, measured on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agensh.errors import UsageError


def rehearse(
    workers: Annotated[int, typer.Option(min=1, max=1024, help="How many workers.")] = 8,
    minutes: Annotated[float, typer.Option(min=0.05, max=720, help="How long they call.")] = 3.0,
    hosts: Annotated[
        int | None, typer.Option(min=1, max=64, help="Node hosts that share the workers (default: see docs).")
    ] = None,
    generators: Annotated[
        int | None, typer.Option(min=1, max=64, help="Processes that make the calls (default: one a core).")
    ] = None,
    call_every: Annotated[float, typer.Option(min=0, help="Seconds between a worker's tool calls; 0: none.")] = 20.0,
    entry_every: Annotated[float, typer.Option(min=0, help="Seconds between its entries.")] = 160.0,
    dm_every: Annotated[float, typer.Option(min=0, help="Seconds between its direct messages.")] = 75.0,
    post_every: Annotated[float, typer.Option(min=0, help="Seconds between its channel posts.")] = 600.0,
    merge_every: Annotated[float, typer.Option(min=0, help="Seconds between its merged pull requests.")] = 1200.0,
    turn_every: Annotated[
        float, typer.Option(min=0, help="Mean seconds of a turn; 0: one turn for all the time.")
    ] = 60.0,
    spacing: Annotated[str, typer.Option(help="How calls are spaced: exponential or uniform.")] = "exponential",
    contacts: Annotated[int, typer.Option(min=1, max=1023, help="How many others a worker writes to.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 1,
    db: Annotated[
        str,
        typer.Option(
            help="A database server instead of a private MariaDB: its URL with {name} for the database.",
            envvar="AGENSH_REHEARSE_DB",
        ),
    ] = "",
    sqlite: Annotated[bool, typer.Option("--sqlite", help="On SQLite instead of a private MariaDB.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Folder to keep the run in (default: it is removed).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Rehearse a team's coordination: real services, node hosts and routers; light workers that only call tools."""
    from agensh.cli.rehearsing import perform
    from agensh.rehearse.plan import Rates
    from agensh.rehearse.rehearsal import Options

    if spacing not in {"exponential", "uniform"}:
        raise UsageError(f"--spacing: {spacing!r} is not allowed; it is exponential or uniform.")
    if db and sqlite:
        raise UsageError("--db and --sqlite: give one of the two.")
    options = Options(
        workers=workers,
        seconds=minutes * 60,
        hosts=hosts,
        generators=generators,
        rates=Rates(call=call_every, entry=entry_every, message=dm_every, post=post_every, merge=merge_every),
        spacing=spacing,
        contacts=contacts,
        turn=turn_every,
        seed=seed,
        db=db,
        sqlite=sqlite,
    )
    perform(options, keep, as_json=as_json)
