"""Commands that look at a run: status, report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from agensh.clock import SystemClock
from agensh.launch.local import Health, read_health, running_launcher
from agensh.rundir import RunDir, find_run
from agensh.runs.html import clock_label, figures, render_html
from agensh.runs.record import load_record
from agensh.runs.report import Report, build_report

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
    found = find_run(runs, run)
    record = asyncio.run(load_record(found))
    pid = running_launcher(found)
    health = _ask_node(found) if pid is not None else None
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "run": found.run_id,
                    "state": record.state,
                    "launcher_pid": pid,
                    "elapsed_s": health.elapsed if health else None,
                    "left_s": health.left if health else None,
                    "workers": health.workers if health else {},
                    "turns": len(record.turns),
                    "events_queued": sum(event["state"] in {"queued", "in_flight"} for event in record.events),
                    "events_dead": sum(event["state"] == "dead" for event in record.events),
                    "parked": {row["worker"]: row["parked_reason"] for row in record.sessions if row["parked_reason"]},
                    "urls": record.info.urls.model_dump() if pid is not None else {},
                }
            )
        )
        return
    console = Console(highlight=False)
    running = f"running (process {pid})" if pid is not None else f"not running ({record.state})"
    console.print(f"{found.run_id}: {running}; {found.path}")
    if health is not None:
        console.print(
            f"{clock_label(health.elapsed)} gone, {clock_label(health.left)} left, {health.queued} events queued"
        )
        table = Table("worker", "state")
        for name, state in health.workers.items():
            table.add_row(name, state)
        console.print(table)
        for name, url in record.info.urls.model_dump().items():
            console.print(f"{name}: {url}")
    for row in record.sessions:
        if row["parked_reason"]:
            console.print(f"parked: {row['worker']}: {row['parked_reason']}", markup=False)
    if pid is None and record.state not in {"finished"}:
        console.print(f"Go on with: agensh resume {found.path}")


def _ask_node(run: RunDir) -> Health | None:
    headers = {"Authorization": f"Bearer {run.secrets().node_admin}"}
    try:
        answer = httpx.get(f"{run.info().urls.node}/status", headers=headers, timeout=5.0, trust_env=False)
        return read_health(answer.json(), SystemClock().time())
    except httpx.TransportError:
        return None


def report(
    run: RunName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Print the figures of a run."""
    found = find_run(runs, run)
    record = asyncio.run(load_record(found))
    figures_of_run = build_report(record)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(render_html(record), encoding="utf-8")
        if not as_json:
            typer.echo(f"wrote {html}")
    if as_json:
        typer.echo(json.dumps(figures_of_run.to_json()))
    elif html is None:
        print_report(Console(), found, figures_of_run)


def print_report(console: Console, run: RunDir, report: Report) -> None:
    """Print a report as a table, with its pass rate curve."""
    table = Table(title=f"{report.run} ({report.state})", show_header=False, title_justify="left")
    for label, value in figures(report):
        table.add_row(label, value)
    if report.pass_rate_curve:
        curve = "  ".join(f"{clock_label(at)} {share:.0%}" for at, share in report.pass_rate_curve)
        table.add_row("pass rate over time", curve)
    for worker, reason in report.parked.items():
        table.add_row(f"parked: {worker}", reason)
    console.print(table)
    console.print(f"record: {run.path}", soft_wrap=True, highlight=False)
