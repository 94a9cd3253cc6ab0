"""What `agensh cost` prints."""

from __future__ import annotations

import asyncio
import json

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agensh.cli.showing import collect_first
from agensh.errors import AgenshError
from agensh.gateway.accounts import dollars
from agensh.rundir import RunDir
from agensh.runs.cost import Cost, Used, rows_of
from agensh.runs.html import clock_label, money
from agensh.runs.record import load_record
from agensh.text import printable_line

_WIDEST = 1_000  # columns


def show_cost(run: RunDir, *, as_json: bool) -> None:
    """Print a run's tokens and money; AgenshError when it has no gateway."""
    collect_first(run)
    cost = asyncio.run(load_record(run)).cost
    if cost is None:
        raise AgenshError(
            f"{run.run_id} has no gateway, so nothing was metered; a [gateway] section in team.toml adds one. "
            "`agensh report` shows what the CLIs said themselves."
        )
    if as_json:
        typer.echo(json.dumps(cost.to_json()))
        return
    print_cost(Console(highlight=False), run.run_id, cost)


def print_cost(console: Console, title: str, cost: Cost) -> None:
    """Print the tables of a cost."""
    summary = Table(title=title, show_header=False, title_justify="left")
    summary.add_row("cost", dollars(cost.total.cost_usd))
    for label, value in money(cost):
        summary.add_row(label, Text(printable_line(value)))
    console.print(summary)
    tables = [_table(what, [*rows, ("in all", cost.total)]) for what, rows in rows_of(cost)]
    # A name or a number that is cut short tells nothing: on a narrow terminal the lines break instead.
    needed = [console.measure(table, options=console.options.update_width(_WIDEST)).maximum for table in tables]
    console.width = max(console.width, *needed)
    for table in tables:
        console.print(table)
    _print_stops(console, cost)


def _table(what: str, rows: list[tuple[str, Used]]) -> Table:
    table = Table(f"by {what}")
    for column in ("requests", "input", "cached", "output", "reasoning", "cost"):
        table.add_column(column, justify="right")
    for label, used in rows:
        counts = (used.requests, used.input, used.cached, used.output, used.reasoning)
        table.add_row(Text(printable_line(label)), *(f"{count:,}" for count in counts), dollars(used.cost_usd))
    return table


def _print_stops(console: Console, cost: Cost) -> None:
    for stop in cost.stops:
        console.print(
            f"stopped at {clock_label(stop.at_s)}: {printable_line(stop.worker)}: the {stop.budget}'s budget was spent "
            f"({stop.refusals} refused)",
            markup=False,
        )
