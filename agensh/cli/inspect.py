"""Commands that look at a run: status, report, cost. Their bodies are loaded when one of them is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunName = Annotated[str | None, typer.Argument(help="Run folder or name (default: the newest).")]
Runs = Annotated[
    Path, typer.Option("--runs", envvar="AGENSH_RUNS", help="Folder that holds the runs.", show_default="runs")
]


def status(
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Show what a run is doing."""
    from agensh.cli.showing import show_status
    from agensh.rundir import find_run

    show_status(find_run(runs, run), as_json=as_json)


def report(
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Print the figures of a run."""
    from agensh.cli.showing import show_report
    from agensh.rundir import find_run

    show_report(find_run(runs, run), as_json=as_json, html=html)


def cost(
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Print the tokens and the money of a run, while it goes on as well."""
    from agensh.cli.costing import show_cost
    from agensh.rundir import find_run

    show_cost(find_run(runs, run), as_json=as_json)
