"""What the commands that look at a run print."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agensh.cli.parked import remedies
from agensh.clock import SystemClock
from agensh.errors import AgenshError
from agensh.launch.compose.project import ENDED, ENDING
from agensh.launch.health import Health, NodeSilent, ask_nodes, read_health
from agensh.launch.lock import running_launcher
from agensh.rundir import RunDir, RunInfo
from agensh.runs.html import clock_label, figures, render_html
from agensh.runs.record import Record, load_record
from agensh.runs.report import Report, build_report
from agensh.text import printable_line


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether somebody runs a run, and what its node hosts say."""

    state: str
    """`running`, `paused` or `down`."""
    where: str
    """For a person: the process, the project, or why nobody runs it."""
    health: Health | None
    urls: dict[str, str]
    """Where its services answer on this box."""
    launcher: int | None = None
    """Process id of the launcher of a local run."""


def show_status(run: RunDir, *, as_json: bool) -> None:
    """Print what a run is doing."""
    record = asyncio.run(load_record(run))
    standing = _in_containers(run) if record.info.containers is not None else _local(run, record.info)
    health = standing.health
    # The database of a run in containers is out of reach here; the node host is asked instead.
    told = health if record.info.containers is not None else None
    over = is_over(run, record)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "run": run.run_id,
                    "live": standing.state,
                    "state": "running" if told else record.state,
                    "launcher_pid": standing.launcher,
                    "elapsed_s": health.elapsed if health else None,
                    "left_s": health.left if health else None,
                    "workers": health.workers if health else {},
                    "turns": told.turns if told else len(record.turns),
                    "events_queued": told.queued
                    if told
                    else sum(event["state"] in {"queued", "in_flight"} for event in record.events),
                    "events_dead": sum(event["state"] == "dead" for event in record.events),
                    "parked": _parked(record, health),
                    "oldest_unseen_s": health.unseen if health else {},
                    "urls": standing.urls,
                }
            )
        )
        return
    console = Console(highlight=False)
    where = standing.where if standing.state != "down" else f"not running ({_last_state(record.state, standing.where)})"
    console.print(f"{run.run_id}: {where}; {run.path}", soft_wrap=True, markup=False)
    if health is not None:
        console.print(
            f"{clock_label(health.elapsed)} gone, {clock_label(health.left)} left, {health.queued} events queued"
        )
        table = Table("worker", "state", "oldest unseen")
        for name, state in health.workers.items():
            waits = health.unseen.get(name)
            table.add_row(name, Text(printable_line(state)), "" if waits is None else clock_label(waits))
        console.print(table)
    for name, url in standing.urls.items():
        console.print(f"{name}: {url}")
    parked = _parked(record, health)
    for worker, reason in parked.items():
        console.print(f"parked: {worker}: {printable_line(reason)}", markup=False, soft_wrap=True)
    for remedy in [] if over else remedies(record.info, parked):
        console.print(remedy, markup=False, soft_wrap=True)
    if standing.state != "running" and not over:
        console.print(f"Go on with: agensh resume {run.path}", soft_wrap=True, markup=False)


def is_over(run: RunDir, record: Record) -> bool:
    """Say whether a run has ended for good."""
    return not (run.path / ENDING).exists() and (record.state in {"finished", "aborted"} or (run.path / ENDED).exists())


def _last_state(state: str, why: str) -> str:
    return ", ".join(part for part in (state, why) if part)


def _parked(record: Record, health: Health | None) -> dict[str, str]:
    if health is not None:
        return health.parked  # the record of a run in containers may be older
    return {row["worker"]: row["parked_reason"] for row in record.sessions if row["parked_reason"]}


def _local(run: RunDir, info: RunInfo) -> Standing:
    pid = running_launcher(run)
    if pid is None:
        return Standing("down", "", None, {})
    urls = {name: url for name, url in info.urls.model_dump().items() if url}
    return Standing("running", f"running (process {pid})", _ask_node(run), urls, pid)


def _in_containers(run: RunDir) -> Standing:
    from agensh.launch.compose.live import LiveRun, ProjectState
    from agensh.launch.compose.preflight import PORTS

    try:
        live = LiveRun(run)
        state = live.state()
    except AgenshError as error:
        return Standing("down", str(error).rstrip("."), None, {})
    if state is ProjectState.DOWN:
        return Standing("down", "", None, {})
    urls = {
        name.removeprefix("AGENSH_PORT_").lower(): f"http://127.0.0.1:{port}"
        for name, port in live.ports(PORTS).items()
    }
    where = f"{state} (containers of project {live.project})"
    if (run.path / ENDING).exists():
        return Standing(state, f"{where}; its time is over, it is being collected and graded", None, urls)
    if state is ProjectState.PAUSED:
        return Standing(state, f"{where}; its clock goes on", None, urls)
    try:
        health = read_health(live.ask(), SystemClock().time())
    except AgenshError as error:
        return Standing(state, f"{where}; {str(error).rstrip('.')}", None, urls)
    return Standing(state, where, health, urls)


def _ask_node(run: RunDir) -> Health | None:
    try:
        return read_health(asyncio.run(ask_nodes(run, run.info())), SystemClock().time())
    except NodeSilent:
        return None


def collect_first(run: RunDir) -> None:
    """Bring the record of a run in containers up to date, as far as its containers are there."""
    info = run.info()
    if info.containers is None:
        return
    from agensh.launch.compose.live import refresh

    if why := refresh(run, info):
        typer.echo(f"{why}; these are the figures that were collected before", err=True)


def show_report(run: RunDir, *, as_json: bool, html: Path | None) -> None:
    """Print the figures of a run, or write them as a page."""
    collect_first(run)
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
        if not is_over(run, record):
            for remedy in remedies(record.info, report.parked):
                typer.echo(remedy)


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
