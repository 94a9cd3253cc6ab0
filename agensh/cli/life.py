"""Commands for a run that is there: pause, wait, logs, attach, export. Their bodies are in `living.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agensh.cli.inspect import RunName, Runs

OfRun = Annotated[str | None, typer.Option("--run", help="The run: its folder or name (default: the newest).")]


def pause(run: RunName = None, runs: Runs = Path("runs")) -> None:
    """Freeze a team in containers: node host and workers. The run's clock goes on; `agensh resume` lets it go on."""
    from agensh.cli.living import pause_run
    from agensh.rundir import find_run

    pause_run(find_run(runs, run))


def wait(run: RunName = None, runs: Runs = Path("runs")) -> None:
    """Wait for the end of a team in containers. Exit code 0: its time is over; 1: it was stopped or aborted."""
    from agensh.cli.composing import find_container_run
    from agensh.cli.living import wait_for_end

    wait_for_end(find_container_run(runs, run))


def logs(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="A worker, or one of the run's processes.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until the run ends.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines; 0: all.")] = 100,
    run: OfRun = None,
    runs: Runs = Path("runs"),
) -> None:
    """Show what a worker's CLI, or a process such as `node` or `board`, has logged."""
    from agensh.cli.living import show_log
    from agensh.rundir import find_run

    show_log(find_run(runs, run), name, lines=lines, follow=follow)


def attach(
    worker: Annotated[str, typer.Argument(help="The worker: its handle, or its name without the team's.")],
    run: OfRun = None,
    runs: Runs = Path("runs"),
) -> None:
    """Open a shell in a worker's container, as the worker (uid 10000), in its folder."""
    from agensh.cli.living import attach_to
    from agensh.rundir import find_run

    attach_to(find_run(runs, run), worker)


def export(
    run: RunName = None,
    to: Annotated[Path | None, typer.Option("--to", help="A new or empty folder (default: RUN-export here).")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Write a run out: main as an archive, the workspace as a Git bundle, the record, report and logs as files."""
    from agensh.cli.living import export_run
    from agensh.rundir import find_run

    export_run(find_run(runs, run), to)
