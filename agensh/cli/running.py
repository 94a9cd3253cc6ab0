"""What the commands that run a team do."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import typer
from rich.console import Console

from adapters.registry import adapter_class, adapter_names
from agensh.cli.progress import Progress
from agensh.cli.showing import print_report
from agensh.clock import SystemClock
from agensh.embedded.model import NAME
from agensh.errors import AgenshError, UsageError
from agensh.gateway.credential import read_credential
from agensh.harnesses import cache, install, package_of
from agensh.launch.baseline import BaselineRun
from agensh.launch.create import create_baseline, create_run
from agensh.launch.local import LocalRun
from agensh.launch.lock import running_launcher
from agensh.rundir import RunDir
from agensh.runs.report import Report
from agensh.spec import TeamSpec, load_spec

WINDOW = 1_000_000  # tokens; a demo is shorter than that, so no CLI has to shorten its history
STOP_PATIENCE = 60.0  # seconds `agensh stop` waits for the launcher


def stop_run(run: RunDir) -> None:
    """Interrupt the launcher of a run and wait for its end."""
    pid = running_launcher(run)
    if pid is None:
        typer.echo(f"{run.run_id} is not running.")
        return
    os.kill(pid, signal.SIGINT)
    asyncio.run(_wait_for_end(run))
    typer.echo(f"{run.run_id} stopped; the record is in {run.path}")


async def _wait_for_end(run: RunDir) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + STOP_PATIENCE
    while (pid := running_launcher(run)) is not None:
        if clock.monotonic() > deadline:
            raise AgenshError(f"{run.run_id} is still running after {STOP_PATIENCE:g} s (process {pid}).")
        await clock.sleep(0.1)


def start(
    spec_file: Path, overrides: dict[str, object], root: Path, checkpoints: int, *, playbook: Path | None = None
) -> None:
    """Make a run from a spec and run it to its end; with a playbook the scripted model plays it."""
    execute(create_run(_checked(spec_file, overrides), root, SystemClock(), playbook=playbook), checkpoints)


def start_baseline(spec_file: Path, overrides: dict[str, object], root: Path, checkpoints: int) -> None:
    """Make a baseline from a spec and run it to its end."""
    spec = _checked(spec_file, overrides)
    if adapter_class(spec.worker.harness).needs_tools:
        raise UsageError(
            f"worker.harness: {spec.worker.harness!r} cannot work alone, for it does everything with the team's tools; "
            f"a baseline takes {', '.join(name for name in adapter_names() if not adapter_class(name).needs_tools)}."
        )
    execute(create_baseline(spec, root, SystemClock()), checkpoints)


def _checked(spec_file: Path, overrides: dict[str, object]) -> TeamSpec:
    """Read a spec and refuse what would fail later."""
    if shutil.which("git") is None:
        raise AgenshError("git is not installed; `agensh doctor` lists what a run needs.")
    spec = load_spec(spec_file, overrides)
    adapter = adapter_class(spec.worker.harness)
    adapter.check(spec.task.kind, spec.worker.options)
    if spec.worker.max_output_tokens and not adapter.limits_output:
        raise UsageError(
            f"worker.max_output_tokens: {spec.worker.max_output_tokens} is not possible: the CLI of the "
            f"{spec.worker.harness} harness has no such limit; leave it 0."
        )
    if spec.gateway is not None:
        read_credential(spec.gateway)  # now, and not when everything else runs
    return spec


def with_cli(harness: str) -> dict[str, object]:
    """Install the CLI of a harness where that is due; return what a spec says to run it with the scripted model.

    UsageError when the harness has no CLI of its own, InstallFailed when npm cannot bring it.
    """
    row = package_of(harness)
    adapter_class(harness)
    typer.echo(f"{row.name} {row.newest}: looked for in {cache()}, else installed from npm", err=True)
    typer.echo("the model is a script and nothing is paid: its tokens are priced as a real model's would be", err=True)
    return {
        "worker.harness": harness,
        "worker.model": NAME,
        "worker.options": {"binary": str(install(row.name))},
        "worker.max_prompt_tokens": WINDOW,
    }


def execute(run: RunDir, checkpoints: int) -> None:
    """Run a run folder to its end and print the report; exit code 1 when it was stopped."""
    with Progress() as progress:
        kind = BaselineRun if run.info().baseline else LocalRun
        report = asyncio.run(_until_done(kind(run, progress), checkpoints))
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
