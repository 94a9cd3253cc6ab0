"""Commands that run a team: demo, run, resume, stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agensh.cli.inspect import print_report
from agensh.cli.progress import Progress
from agensh.clock import SystemClock
from agensh.errors import AgenshError, UsageError
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.launch.local import LocalRun, running_launcher
from agensh.rundir import RunDir, find_run
from agensh.runs.checkpoints import DEFAULT_CHECKPOINTS
from agensh.runs.report import Report
from agensh.spec import load_spec

Runs = Annotated[
    Path, typer.Option("--runs", envvar="AGENSH_RUNS", help="Folder that holds the runs.", show_default="runs")
]
Checkpoints = Annotated[int, typer.Option(min=1, max=1000, help="How many points of main's history to grade.")]
STOP_PATIENCE = 60.0  # seconds `agensh stop` waits for the launcher


def demo(
    workers: Annotated[int, typer.Option(min=1, max=1024, help="How many workers.")] = 8,
    speed: Annotated[
        float | None,
        typer.Option(help="How much faster than real time the 6-hour clock runs (default: as in the spec)."),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder to keep the run in (default: below --runs).")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """A team of rule-based workers rebuilds the textutils, embedded; ends with the report."""
    overrides: dict[str, object] = {"team.workers": workers}
    if speed is not None:
        overrides["clock.speed"] = speed
    _start(example("textutils") / "team.toml", overrides, keep or runs, checkpoints)


def run(
    spec: Annotated[Path, typer.Argument(help="The team spec, team.toml.")],
    local: Annotated[bool, typer.Option("--local", help="On this machine, with the embedded services.")] = False,
    speed: Annotated[float | None, typer.Option(help="Rehearsal factor; overrides clock.speed of the spec.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=1024, help="Overrides team.workers of the spec.")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """Run a team on a spec of your own."""
    if not local:
        raise UsageError("run: say where; --local runs the team on this machine with the embedded services.")
    overrides: dict[str, object] = {}
    if speed is not None:
        overrides["clock.speed"] = speed
    if workers is not None:
        overrides["team.workers"] = workers
    _start(spec, overrides, runs, checkpoints)


def resume(
    run: Annotated[str | None, typer.Argument(help="Run folder or name (default: the newest).")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """Go on with a run that was interrupted, on the same clock."""
    _execute(find_run(runs, run), checkpoints)


def stop(
    run: Annotated[str | None, typer.Argument(help="Run folder or name (default: the newest).")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Stop a run in order; `agensh resume` goes on with it."""
    found = find_run(runs, run)
    pid = running_launcher(found)
    if pid is None:
        typer.echo(f"{found.run_id} is not running.")
        return
    os.kill(pid, signal.SIGINT)
    asyncio.run(_wait_for_end(found))
    typer.echo(f"{found.run_id} stopped; the record is in {found.path}")


async def _wait_for_end(run: RunDir) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + STOP_PATIENCE
    while (pid := running_launcher(run)) is not None:
        if clock.monotonic() > deadline:
            raise AgenshError(f"{run.run_id} is still running after {STOP_PATIENCE:g} s (process {pid}).")
        await clock.sleep(0.1)


def _start(spec_file: Path, overrides: dict[str, object], root: Path, checkpoints: int) -> None:
    for program in ("git",):
        if shutil.which(program) is None:
            raise AgenshError(f"{program} is not installed; `agensh doctor` lists what a run needs.")
    spec = load_spec(spec_file, overrides)
    _execute(create_run(spec, root, SystemClock()), checkpoints)


def _execute(run: RunDir, checkpoints: int) -> None:
    with Progress() as progress:
        report = asyncio.run(_until_done(LocalRun(run, progress), checkpoints))
    if report is None:
        sys.stderr.write(f"agensh: stopped; the record is in {run.path}\nGo on with: agensh resume {run.path}\n")
        raise typer.Exit(1)
    print_report(Console(), run, report)


async def _until_done(local: LocalRun, checkpoints: int) -> Report | None:
    """Run to the end and return the report; SIGINT and SIGTERM end it in order and return None."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(local.execute(checkpoints=checkpoints))
    stopping = False

    def end() -> None:
        nonlocal stopping
        if not stopping:  # a second Ctrl-C must not cut the ending short: it would strand children
            stopping = True
            local.watcher.say("stopping: workers first, then the services")
            task.cancel()

    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopping:
            raise
        return None
