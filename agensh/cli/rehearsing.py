"""What `agensh rehearse` does."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from agensh.clock import SystemClock
from agensh.rehearse.counting import Quantiles
from agensh.rehearse.figures import Figures
from agensh.rehearse.rehearsal import Options, Rehearsal


def perform(options: Options, keep: Path | None, *, as_json: bool) -> None:
    """Rehearse and print the figures; exit code 1 when something was lost, repeated or left undone."""
    with ExitStack() as stack:
        if keep is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agensh-rehearse-")))
        else:
            keep.mkdir(parents=True, exist_ok=True)
            root = keep.absolute()
        figures = asyncio.run(_rehearse(options, root))
    if figures is None:
        sys.stderr.write("agensh: stopped\n")
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(figures.to_json(), indent=2))
    else:
        _print(figures)
    if not figures.sound:
        raise typer.Exit(1)


async def _rehearse(options: Options, root: Path) -> Figures | None:
    """Rehearse to the end; SIGINT and SIGTERM end it in order and return None."""
    rehearsal = Rehearsal(options, root, _say, SystemClock())
    task = asyncio.ensure_future(rehearsal.run())
    stopping = False

    def end() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            _say("stopping")
            task.cancel()

    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopping:
            raise
        return None


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _print(figures: Figures) -> None:
    table = Table("figure", "value", title=f"{figures.workers} workers, {figures.seconds:g} s, {figures.database}")
    for name, value in figures.to_json().items():
        found = getattr(figures, name)
        if isinstance(found, Quantiles):
            table.add_row(name, f"p50 {found.p50:g}   p99 {found.p99:g}   max {found.largest:g}")
        elif isinstance(value, dict):
            table.add_row(name, "   ".join(f"{key} {item:g}" for key, item in value.items()))
        elif isinstance(value, list):
            for item in value:
                table.add_row(name, str(item))
        else:
            table.add_row(name, str(value))
    Console(markup=False).print(table)
