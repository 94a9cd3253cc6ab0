"""Commands of a team on one box with Docker: up, down, clean, provision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agensh.cli.run import Runs
from agensh.errors import UsageError

Name = Annotated[
    str | None, typer.Argument(help="The run: its folder, or its name below --runs (default: the newest).")
]
EnvFile = Annotated[
    Path, typer.Option("--env-file", help="File with NAME=value lines: the model's key, images, ports.")
]


def up(
    spec: Annotated[Path, typer.Argument(help="The team spec.")] = Path("team.toml"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be made, and make nothing.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, max=249, help="Overrides team.workers of the spec.")] = None,
    speed: Annotated[float | None, typer.Option(help="Rehearsal factor; overrides clock.speed of the spec.")] = None,
    env_file: EnvFile = Path(".env"),
    runs: Runs = Path("runs"),
) -> None:
    """Bring up a team on this box: services, accounts, node host, workers in containers. Again: go on with the run."""
    from agensh.cli.composing import bring_up, show_plan

    overrides: dict[str, object] = {}
    if workers is not None:
        overrides["team.workers"] = workers
    if speed is not None:
        overrides["clock.speed"] = speed
    (show_plan if dry_run else bring_up)(spec, overrides, env_file, runs)


def down(name: Name = None, runs: Runs = Path("runs")) -> None:
    """Stop a team that `up` started; its record and data stay, and `up` goes on with the run."""
    from agensh.cli.composing import take_down

    take_down(runs, name)


def clean(
    name: Name = None,
    everything: Annotated[bool, typer.Option("--all", help="Of every team below --runs.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Remove the containers, networks and volumes of a team that `up` started; the run's folder stays."""
    from agensh.cli.composing import clean_all, clean_up

    if everything and name is not None:
        raise UsageError(f"--all: not with a run ({name!r}); give one of the two.")
    if everything:
        clean_all(runs)
    else:
        clean_up(runs, name)


def provision(name: Name = None, runs: Runs = Path("runs")) -> None:
    """Make or repair what a run needs on its running services: accounts, tokens, repository, channel."""
    from agensh.cli.composing import provision_again

    provision_again(runs, name)
