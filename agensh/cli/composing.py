"""What the commands of a team in containers do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import typer

from adapters.container_runtime import connect
from adapters.registry import adapter_class
from agensh.clock import SystemClock
from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.live import LiveRun, ProjectState, containers_of, has_remains
from agensh.launch.compose.preflight import check_box, check_name, check_size
from agensh.launch.compose.project import ADMIN, ENDED, create_project_run, project_runs, renew_credential
from agensh.launch.compose.reference import way_to_read
from agensh.launch.compose.stack import Stack, Stage
from agensh.launch.lock import alone_in, hold_command_lock
from agensh.rundir import RunDir, find_run
from agensh.runs.record import load_record
from agensh.spec import TeamSpec, load_spec


def bring_up(spec_file: Path, overrides: Mapping[str, object], env_file: Path, root: Path) -> None:
    """Start the team of a spec, or go on with the run of it that has not ended."""
    environment = read_environment(env_file)
    spec = _spec(spec_file, overrides)
    run = open_run(root, spec.team.name)
    if run is None:
        _check_name_is_free(spec.team.name, root)
        check_box(root, environment)
        with alone_in(root):  # two calls at once make one run
            run = open_run(root, spec.team.name)
            if run is None:
                images = _images(environment)
                made = create_project_run(spec, root, SystemClock(), images=images, environment=environment)
                typer.echo(f"run: {made.path}")
                if spec.task.reference is not None and (way := way_to_read(spec.task.reference)):
                    typer.echo(f"note: task.reference: {way}")
    if run is not None:
        made = run
        typer.echo(f"run: {run.path} (going on; a changed spec counts for the next run)")
    with _at_work(made):
        if run is not None:
            renew_credential(run, spec, environment)
        start_stack(Stack(made, typer.echo, environment))


@contextmanager
def _at_work(run: RunDir) -> Iterator[None]:
    """Be the one command that changes the containers of a run; SIGTERM interrupts it as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with hold_command_lock(run):
        before = signal.signal(signal.SIGTERM, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _check_name_is_free(project: str, root: Path) -> None:
    """UsageError when the engine still has something of a project, with whose data a new run cannot begin."""
    if not has_remains(connect(), project):
        return
    over = project_runs(root, project)
    if not over:
        raise UsageError(
            f"team.name: {project!r} is taken: the engine has containers or volumes of a project of that name that "
            f"no run below {root} has made; choose another name, or name the other team's folder with --runs (was it "
            "deleted, docs/operations.md says how to remove the rest)."
        )
    raise UsageError(
        f"team.name: {project!r} still has the containers or volumes of {over[-1].run_id}, which is over; "
        f"`agensh clean {over[-1].run_id}` removes them (its record stays), or choose another name."
    )


def start_stack(stack: Stack, *, wait: bool = True) -> None:
    """Bring a project up and say where it answers; for a run whose time is over, say that.

    `wait` waits for the grades and the report of such a run. AgenshError when it has ended in another way.
    """
    run = stack.run
    stage = stack.up()
    if stage is Stage.RUNNING:
        ports = stack.ports()
        typer.echo(f"{stack.info.spec.team.workers} workers, {stack.info.spec.worker.harness}")
        typer.echo(f"  Gitea       http://127.0.0.1:{ports['AGENSH_PORT_GITEA']}")
        typer.echo(f"  Mattermost  http://127.0.0.1:{ports['AGENSH_PORT_MATTERMOST']}")
        typer.echo(f"  board       http://127.0.0.1:{ports['AGENSH_PORT_BOARD']}")
        typer.echo(f"  log in as   {ADMIN}, with the passwords of forge_admin and chat_admin in {run.secrets_file}")
        typer.echo(f"  look at it  agensh status {run.run_id}")
        typer.echo(f"  stop it     agensh down {run.run_id}")
        return
    if stage is Stage.ENDING:
        if not wait:
            typer.echo(f"{run.run_id} is over; its node host collects and grades it")
            return
        typer.echo(f"{run.run_id} is over; waiting for its grades and its report (`agensh logs node -f` shows them)")
        LiveRun(run, stack.client).wait_for_end()
    state = asyncio.run(load_record(run)).state
    if state == "finished":
        typer.echo(f"{run.run_id} is over; `agensh report {run.run_id}` shows what it did")
        return
    if state == "aborted":
        stack.down()
        raise AgenshError(
            f'{run.run_id} is aborted: the box was rebooted and container.on_reboot is "abort". Its record is in '
            f"{run.path}; `agensh clean {run.run_id}` removes its data."
        )
    raise AgenshError(f"{run.run_id} is over ({state}): its data was removed meanwhile.")


def show_plan(spec_file: Path, overrides: Mapping[str, object], env_file: Path, root: Path) -> None:
    """Print what `up` would make."""
    environment = read_environment(env_file)
    spec = _spec(spec_file, overrides)
    from agensh.launch.compose.dry_run import plan_lines

    run = open_run(root, spec.team.name)
    for line in plan_lines(spec, root, run, environment):
        typer.echo(line)


def go_on(run: RunDir, *, wait: bool = True) -> None:
    """Go on with a run in containers: let it go on when it is paused, else bring it up. AgenshError when it is over.

    `wait` is that of `start_stack`.
    """
    if (run.path / ENDED).exists():
        raise AgenshError(f"{run.run_id} is over; `agensh report {run.run_id}` shows what it did.")
    stack = _own_stack(run)
    live = LiveRun(run, stack.client)
    with _at_work(run):
        if live.state() is ProjectState.PAUSED:
            live.unpause()
            typer.echo(f"{run.run_id} goes on; its clock went on meanwhile, `agensh status {run.run_id}` shows it")
            return
        start_stack(stack, wait=wait)


def go_on_all(root: Path) -> None:
    """Go on with every run in containers that the box's end has interrupted; none is no failure.

    One that `down` has stopped has no containers and stays stopped. AgenshError when a run cannot go on, after all.
    """
    failed = []
    for run in _container_runs(root):
        try:
            if not (run.path / ENDED).exists() and LiveRun(run).exists():
                typer.echo(f"run: {run.path}")
                go_on(run, wait=False)
        except AgenshError as error:
            failed.append(str(error))
    if failed:
        raise AgenshError("; ".join(failed))


def clean_all(root: Path) -> None:
    """Remove the containers, networks and volumes of every run below `root`; says what cannot be removed."""
    by_project = {}
    for run in _container_runs(root):
        by_project[containers_of(run, run.info()).project] = run
    if not by_project:
        return
    try:
        client = connect()
    except AgenshError as error:
        typer.echo(f"nothing is removed of {', '.join(by_project)}: {error}", err=True)
        return
    for project, run in by_project.items():
        if not has_remains(client, project):
            continue
        try:
            with _at_work(run):
                _own_stack(run).clean()
            typer.echo(f"removed the containers, networks and volumes of {project}; {run.path} stays")
        except AgenshError as error:
            typer.echo(f"{project}: {error}", err=True)


def take_down(root: Path, name: str | None) -> None:
    """Stop a project."""
    stack = _own_stack(find_container_run(root, name))
    with _at_work(stack.run):
        stack.down()
    typer.echo(f"stopped; the record is in {stack.run.path}")


def clean_up(root: Path, name: str | None) -> None:
    """Remove a project."""
    stack = _own_stack(find_container_run(root, name))
    with _at_work(stack.run):
        stack.clean()
    typer.echo(f"removed the containers, networks and volumes of {stack.project}; {stack.run.path} stays")


def provision_again(root: Path, name: str | None) -> None:
    """Provision a running project once more."""
    stack = _own_stack(find_container_run(root, name))
    with _at_work(stack.run):
        stack.provision()


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
    check_name(spec.team.name)
    check_size(spec.team.workers)
    adapter_class(spec.worker.harness).check(spec.task.kind, spec.worker.options)
    return spec


def _own_stack(run: RunDir) -> Stack:
    """Return the project of a run; UsageError when the project's name belongs to another run by now."""
    stack = Stack(run, typer.echo, read_environment(Path(".env")))
    newest = project_runs(run.path.parent, stack.project)[-1].path
    owner = LiveRun(run, stack.client).owner() or newest
    if owner != run.path:
        raise UsageError(
            f"run: {run.run_id!r} has nothing in project {stack.project} any more: {owner} has taken it since."
        )
    return stack


def find_container_run(root: Path, name: str | None) -> RunDir:
    """Return the run called `name`, or the newest in containers; UsageError when there is none."""
    if name is not None:
        run = find_run(root, name)
        containers_of(run, run.info())
        return run
    runs = _container_runs(root)
    if not runs:
        raise UsageError(f"run: there is none in containers below {root}; start one with `agensh up`.")
    return runs[-1]


def _container_runs(root: Path) -> list[RunDir]:
    """Return the runs in containers below `root`, the oldest first; a folder that cannot be read is none."""
    found = []
    for file in root.glob("*/run.json"):
        run = RunDir(file.parent.absolute())
        with suppress(AgenshError):
            info = run.info()
            if info.containers is not None:
                found.append((info.created_at, run))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]
