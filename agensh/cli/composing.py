"""What the commands of a team in containers do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import typer

from adapters.container_runtime import connect
from adapters.registry import adapter_class
from agensh.clock import SystemClock
from agensh.errors import UsageError
from agensh.launch.compose.preflight import check_box, check_size
from agensh.launch.compose.project import ENDED, create_project_run, project_runs, renew_credential
from agensh.launch.compose.stack import Stack
from agensh.rundir import RunDir, find_run
from agensh.spec import TeamSpec, load_spec


def bring_up(spec_file: Path, overrides: Mapping[str, object], env_file: Path, root: Path) -> None:
    """Start the team of a spec, or go on with the run of it that has not ended."""
    environment = read_environment(env_file)
    spec = _spec(spec_file, overrides)
    run = open_run(root, spec.team.name)
    if run is None:
        check_box(connect(), spec.team.name, root, project_runs(root, spec.team.name), environment)
        run = create_project_run(spec, root, SystemClock(), images=_images(environment), environment=environment)
        typer.echo(f"run: {run.path}")
    else:
        renew_credential(run, spec, environment)
        typer.echo(f"run: {run.path} (going on; a changed spec counts for the next run)")
    stack = Stack(run, typer.echo, environment)
    stack.up()
    ports = stack.ports()
    typer.echo(f"{stack.info.spec.team.workers} workers start, {stack.info.spec.worker.harness}")
    typer.echo(f"  Gitea       http://127.0.0.1:{ports['AGENSH_PORT_GITEA']}")
    typer.echo(f"  Mattermost  http://127.0.0.1:{ports['AGENSH_PORT_MATTERMOST']}")
    typer.echo(f"  board       http://127.0.0.1:{ports['AGENSH_PORT_BOARD']}")
    typer.echo(f"  stop it     agensh down {run.run_id}")


def show_plan(spec_file: Path, overrides: Mapping[str, object], env_file: Path, root: Path) -> None:
    """Print what `up` would make."""
    environment = read_environment(env_file)
    spec = _spec(spec_file, overrides)
    from agensh.launch.compose.dry_run import plan_lines

    run = open_run(root, spec.team.name)
    for line in plan_lines(spec, root, run, environment):
        typer.echo(line)


def take_down(root: Path, name: str | None) -> None:
    """Stop a project."""
    stack = _stack(root, name)
    stack.down()
    typer.echo(f"stopped; the record is in {stack.run.path}")


def clean_up(root: Path, name: str | None) -> None:
    """Remove a project."""
    stack = _stack(root, name)
    stack.clean()
    typer.echo(f"removed the containers, networks and volumes of {stack.project}; {stack.run.path} stays")


def provision_again(root: Path, name: str | None) -> None:
    """Provision a running project once more."""
    _stack(root, name).provision()


def open_run(root: Path, project: str) -> RunDir | None:
    """Return the newest run of a project when it has not ended, else None."""
    runs = project_runs(root, project)
    return runs[-1] if runs and not (runs[-1].path / ENDED).exists() else None


def read_environment(env_file: Path) -> dict[str, str]:
    """Return the process's environment over the lines of `env_file`; UsageError names a line that is no NAME=value.

    It does not repeat the line: whoever pastes a key without a name must not find it in a log.
    """
    values: dict[str, str] = {}
    if env_file.is_file():
        try:
            lines = env_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--env-file: {str(env_file)!r} cannot be read: {error}.") from error
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            name, mark, value = text.removeprefix("export ").partition("=")
            if not mark or not name.strip().isidentifier():
                raise UsageError(f"{env_file}: line {number} is not NAME=value, a comment with '#', or empty.")
            values[name.strip()] = value.strip().strip("\"'")
    elif env_file != Path(".env"):
        raise UsageError(f"--env-file: {str(env_file)!r} does not exist.")
    return values | dict(os.environ)


def _images(environment: Mapping[str, str]) -> dict[str, str]:
    named = {"service": "AGENSH_IMAGE_SERVICE", "worker": "AGENSH_IMAGE_WORKER"}
    return {key: environment[variable] for key, variable in named.items() if environment.get(variable)}


def _spec(spec_file: Path, overrides: Mapping[str, object]) -> TeamSpec:
    spec = load_spec(spec_file, dict(overrides))
    check_size(spec.team.workers)
    adapter_class(spec.worker.harness).check(spec.task.kind, spec.worker.options)
    return spec


def _stack(root: Path, name: str | None) -> Stack:
    if name is None:
        runs = [run for run in _all_runs(root) if run.info().containers is not None]
        if not runs:
            raise UsageError(f"run: there is none in containers below {root}; start one with `agensh up`.")
        run = runs[-1]
    else:
        run = find_run(root, name)
    return Stack(run, typer.echo, read_environment(Path(".env")))


def _all_runs(root: Path) -> list[RunDir]:
    found = [RunDir(file.parent.absolute()) for file in root.glob("*/run.json")]
    return sorted(found, key=lambda run: run.info().created_at)
