"""Commands that run a team: demo, run, baseline, resume, stop.

What they do is in `running.py`, loaded when one of them is called: `agensh board` must not wait for all of it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer

from agensh.errors import UsageError
from agensh.runs import DEFAULT_CHECKPOINTS

Runs = Annotated[
    Path, typer.Option("--runs", envvar="AGENSH_RUNS", help="Folder that holds the runs.", show_default="runs")
]
Checkpoints = Annotated[int, typer.Option(min=1, max=1000, help="How many points of main's history to grade.")]


SCRIPTED = "scripted"
DEMO_SPEED = 120.0  # the run of 6 hours takes 3 minutes
CLI_SPEED = 60.0  # with real CLIs, each of which takes a few seconds to start, 6 minutes


def demo_speed(workers: int, cpus: int, fastest: float = DEMO_SPEED) -> float:
    """Return the demo's speed: a team that is large for the machine gets more time, by the root of its size."""
    return fastest * min(1.0, math.sqrt(4 * cpus / workers))


def demo(
    workers: Annotated[int, typer.Option(min=1, max=1024, help="How many workers.")] = 8,
    harness: Annotated[
        str,
        typer.Option(
            help="scripted: rule-based workers. copilot, claude-code or codex: that CLI, installed from npm, with a "
            "model that follows a script; no key, no cost."
        ),
    ] = SCRIPTED,
    speed: Annotated[
        float | None,
        typer.Option(
            help="How much faster than real time the 6-hour clock runs (default: 120, with a CLI 60; a large team: "
            "less)."
        ),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder to keep the run in (default: below --runs).")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """A team of workers rebuilds the textutils, embedded; ends with the report."""
    from agensh.cli.running import start, with_cli
    from agensh.launch.examples import example

    folder = example("textutils")
    real = harness != SCRIPTED
    overrides: dict[str, object] = with_cli(harness) if real else {}
    overrides["team.workers"] = workers
    fastest = CLI_SPEED if real else DEMO_SPEED
    overrides["clock.speed"] = demo_speed(workers, os.cpu_count() or 1, fastest) if speed is None else speed
    playbook = folder / "playbook" if real else None
    start(folder / "team.toml", overrides, keep or runs, checkpoints, playbook=playbook)


def run(
    spec: Annotated[Path, typer.Argument(help="The team spec, team.toml.")],
    local: Annotated[bool, typer.Option("--local", help="On this machine, with the embedded services.")] = False,
    speed: Annotated[float | None, typer.Option(help="Rehearsal factor; overrides clock.speed of the spec.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=1024, help="Overrides team.workers of the spec.")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """Run a team on a spec of your own."""
    from agensh.cli.running import start

    if not local:
        raise UsageError("run: say where; --local runs the team on this machine with the embedded services.")
    overrides: dict[str, object] = {}
    if speed is not None:
        overrides["clock.speed"] = speed
    if workers is not None:
        overrides["team.workers"] = workers
    start(spec, overrides, runs, checkpoints)


def baseline(
    spec: Annotated[Path, typer.Argument(help="The team spec, team.toml; of its team one worker is left.")],
    speed: Annotated[float | None, typer.Option(help="Rehearsal factor; overrides clock.speed of the spec.")] = None,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """Run one worker alone on a spec, without board, chat and forge: what a team is compared with."""
    from agensh.cli.running import start_baseline

    start_baseline(spec, {} if speed is None else {"clock.speed": speed}, runs, checkpoints)


def resume(
    run: Annotated[str | None, typer.Argument(help="Run folder or name (default: the newest).")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every team in containers that a reboot has interrupted; none is no failure.")
    ] = False,
    checkpoints: Checkpoints = DEFAULT_CHECKPOINTS,
    runs: Runs = Path("runs"),
) -> None:
    """Go on with a run that was interrupted or paused, on the same clock."""
    from agensh.rundir import find_run

    if everything:
        from agensh.cli.composing import go_on_all

        if run is not None:
            raise UsageError(f"--all: not with a run ({run!r}); give one of the two.")
        go_on_all(runs)
        return
    found = find_run(runs, run)
    if found.info().containers is not None:
        from agensh.cli.composing import go_on

        go_on(found)
        return
    from agensh.cli.running import execute

    execute(found, checkpoints)


def stop(
    run: Annotated[str | None, typer.Argument(help="Run folder or name (default: the newest).")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Stop a run in order; `agensh resume` goes on with it. For a team in containers this is `agensh down`."""
    from agensh.rundir import find_run

    found = find_run(runs, run)
    if found.info().containers is not None:
        from agensh.cli.composing import take_down

        take_down(runs, str(found.path))
        return
    from agensh.cli.running import stop_run

    stop_run(found)
