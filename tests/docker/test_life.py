"""Freezing, shells, logs and removal, with containers that only wait; and a run that a reboot aborts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.types import Mount

from agensh.cli.composing import clean_all, go_on
from agensh.clock import SystemClock
from agensh.errors import AgenshError, UsageError
from agensh.identity import write_private_json
from agensh.launch.compose.ending import abort
from agensh.launch.compose.live import LiveRun, ProjectState, has_remains, shell_command
from agensh.launch.compose.project import ENDED, create_project_run
from agensh.launch.examples import example
from agensh.rundir import RunDir
from agensh.runs.record import load_record
from agensh.spec import load_spec
from tests.docker.conftest import AGENSH
from tests.docker.images import BASE

PROJECT = "dockerlife"
WORKER = f"{PROJECT}-worker1"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    overrides: dict[str, object] = {"team.name": PROJECT, "team.workers": 2, "container.on_reboot": "abort"}
    spec = load_spec(example("textutils") / "team.toml", overrides)
    made = create_project_run(spec, tmp_path, SystemClock(), images={}, environment={})
    for worker in (WORKER, f"{PROJECT}-worker2"):
        for folder in ("home", "work"):
            (made.worker(worker) / folder).mkdir(parents=True)
    return made


@pytest.fixture
def live(run: RunDir, images: dict[str, str]) -> Iterator[LiveRun]:
    """A node host and a worker of a run, which do nothing."""
    found = LiveRun(run)
    keep: list[str] = ["sh", "-c", "echo 'ready \033[2J'; exec sleep infinity"]
    compose = {"com.docker.compose.project": PROJECT, "com.docker.compose.service": "node"}
    compose["com.docker.compose.oneoff"] = "False"
    own = {"agensh.project": PROJECT, "agensh.worker": WORKER, "agensh.run": run.run_id}
    made = [
        found.client.containers.run(
            BASE, keep, detach=True, init=True, name=name, labels=labels, mounts=[Mount(path, path, type="bind")]
        )
        for name, labels, path in (
            (f"{PROJECT}_node_1", compose, str(run.path)),
            (f"{PROJECT}_{WORKER}", own, str(run.worker(WORKER))),
        )
    ]
    yield found
    for container in made:
        try:
            container.remove(force=True)
        except docker.errors.NotFound:
            continue
    found.client.close()


def agensh(run: RunDir, *arguments: str, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [*AGENSH, *arguments, "--runs", str(run.path.parent)], input=stdin, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_team_is_frozen_and_goes_on(run: RunDir, live: LiveRun) -> None:
    code, said = agensh(run, "pause")
    assert (code, "1 workers" in said, "the run's clock goes on" in said) == (0, True, True)
    assert live.state() is ProjectState.PAUSED
    assert "its clock goes on" in agensh(run, "status")[1]
    code, said = agensh(run, "pause")
    assert (code, "is paused already" in said) == (1, True)
    code, said = agensh(run, "attach", "worker1")
    assert (code, f"{WORKER} is paused" in said) == (1, True)
    code, said = agensh(run, "resume")
    assert (code, "goes on; its clock went on meanwhile" in said) == (0, True)
    assert live.state() is ProjectState.RUNNING
    assert live.worker(WORKER).status == "running"


def test_a_shell_and_the_log_of_a_process(run: RunDir, live: LiveRun) -> None:
    assert agensh(run, "attach", "worker1", stdin="id -u; pwd; echo $HOME\n") == (
        0,
        f"10000\n{run.worker(WORKER)}/work\n{run.worker(WORKER)}/home\n",
    )
    assert agensh(run, "logs", "node") == (0, "ready \\x1b[2J\n")
    code, said = agensh(run, "attach", "worker2")
    assert (code, "has no container: it has not started yet" in said) == (1, True)
    assert "-t" not in shell_command("c", "/h", "/w", terminal=False)


def test_a_container_of_another_run_of_the_project_is_not_this_runs(run: RunDir, live: LiveRun, tmp_path: Path) -> None:
    spec = load_spec(example("textutils") / "team.toml", {"team.name": PROJECT})
    newer = create_project_run(spec, tmp_path, SystemClock(), images={}, environment={})
    other = LiveRun(newer, live.client)
    assert (other.state(), other.exists()) == (ProjectState.DOWN, False)
    with pytest.raises(AgenshError, match="has no container"):
        other.worker(WORKER)
    with pytest.raises(UsageError, match=f"has nothing in project {PROJECT} any more: {newer.path} has taken it since"):
        go_on(run)


def test_clean_all_removes_what_is_there(run: RunDir, live: LiveRun) -> None:
    assert has_remains(live.client, PROJECT)
    clean_all(run.path.parent)
    assert not has_remains(live.client, PROJECT)
    assert (run.path / ENDED).exists()


def test_wait_tells_of_a_node_host_that_is_gone(run: RunDir, live: LiveRun) -> None:
    live.service("node").remove(force=True)
    code, said = agensh(run, "wait")
    assert (code, "has stopped before its end" in said) == (1, True)


async def test_a_reboot_aborts_the_run_with_its_record(run: RunDir, live: LiveRun) -> None:
    secrets = run.secrets()
    run.write_secrets(secrets.model_copy(update={"runtime_db": f"sqlite+aiosqlite:///{run.path}/runtime.sqlite3"}))
    write_private_json(run.path / "record" / "entries.json", [])
    assert await abort(run, run.info(), 1000.0)
    record = await load_record(run)
    assert (record.state, record.stopped_at) == ("aborted", 1000.0)
    assert '"aborted"' in (run.path / "report.json").read_text()
    with pytest.raises(AgenshError, match="has no container"):
        live.worker(WORKER)
    again = [sys.executable, "-m", "agensh.launch.service", "node", str(run.path), "0"]
    assert (await asyncio.to_thread(subprocess.run, again, check=False)).returncode == 0
    code, said = agensh(run, "resume")
    assert (code, "is over" in said) == (1, True)
