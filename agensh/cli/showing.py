"""What the commands that look at a run print."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agensh.clock import SystemClock
from agensh.launch.health import Health, read_health
from agensh.launch.lock import running_launcher
from agensh.rundir import RunDir
from agensh.runs.html import clock_label, figures, render_html
from agensh.runs.record import load_record
from agensh.runs.report import Report, build_report
from agensh.text import printable_line


def show_status(run: RunDir, *, as_json: bool) -> None:
    """Print what a run is doing."""
    record = asyncio.run(load_record(run))
    pid = running_launcher(run)
    health = _ask_node(run) if pid is not None else None
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "run": run.run_id,
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
    console.print(f"{run.run_id}: {running}; {run.path}")
    if health is not None:
        console.print(
            f"{clock_label(health.elapsed)} gone, {clock_label(health.left)} left, {health.queued} events queued"
        )
        table = Table("worker", "state")
        for name, state in health.workers.items():
            table.add_row(name, Text(printable_line(state)))
        console.print(table)
        for name, url in record.info.urls.model_dump().items():
            console.print(f"{name}: {url}")
    for row in record.sessions:
        if row["parked_reason"]:
            console.print(f"parked: {row['worker']}: {printable_line(row['parked_reason'])}", markup=False)
    if pid is None and record.state not in {"finished"}:
        console.print(f"Go on with: agensh resume {run.path}")


def _ask_node(run: RunDir) -> Health | None:
    headers = {"Authorization": f"Bearer {run.secrets().node_admin}"}
    try:
        with httpx.Client(headers=headers, timeout=5.0, trust_env=False) as http:
            answers = [http.get(f"{place.url}/status").json() for place in run.info().places]
        return read_health(answers, SystemClock().time())
    except httpx.TransportError:
        return None


def show_report(run: RunDir, *, as_json: bool, html: Path | None) -> None:
    """Print the figures of a run, or write them as a page."""
    record = asyncio.run(load_record(run))
    report = build_report(record)
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(render_html(record), encoding="utf-8")
        if not as_json:
            typer.echo(f"wrote {html}")
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    elif html is None:
        print_report(Console(), run, report)


def print_report(console: Console, run: RunDir, report: Report) -> None:
    """Print a report as a table, with its pass rate curve."""
    table = Table(title=f"{report.run} ({report.state})", show_header=False, title_justify="left")
    for label, value in figures(report):
        table.add_row(label, Text(printable_line(value)))
    if report.pass_rate_curve:
        curve = "  ".join(f"{clock_label(at)} {share:.0%}" for at, share in report.pass_rate_curve)
        table.add_row("pass rate over time", curve)
    for worker, reason in report.parked.items():
        table.add_row(f"parked: {worker}", Text(printable_line(reason)))
    console.print(table)
    console.print(f"record: {run.path}", soft_wrap=True, highlight=False)
