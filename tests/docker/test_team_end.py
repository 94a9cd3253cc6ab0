"""The end of a team of eight in containers: the report, `down`, and `make clean`. Everything else was tested before."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import docker
import pytest

from agensh.runs.record import load_record
from tests.docker.conftest import CALL, TEAM, Box, until
from tests.docker.images import BASE, ROOT

pytestmark = pytest.mark.timeout(2400)
END = 1800.0  # seconds until the run of six minutes is over and graded
STRANGER = "agensh-test-stranger"


async def test_the_run_ends_with_nothing_lost(team: Box) -> None:
    run = team.run()
    until((run.path / "ended").exists, "the end of the run", END)
    assert team.agensh("wait").stderr == ""
    record = await load_record(run)
    assert record.state == "finished"
    report = json.loads((run.path / "report.json").read_text())
    assert report["events_dead"] == 0
    assert report["commits_stranded"] == 0
    assert report["merges"] >= 8
    assert report["pass_rate_final"] > 0.5
    assert report["parked"] == {}
    entries = [entry.seq for entry in record.entries]
    assert entries == list(range(1, len(entries) + 1))


def test_down_keeps_the_record(team: Box) -> None:
    team.agensh("down")
    assert not any(name.startswith((f"{TEAM}_", f"{TEAM}-")) for name in team.listing().containers)
    run = team.run()
    for name in ("report.json", "submission.tar.gz", "workspace.bundle", "record/entries.json"):
        assert (run.path / name).stat().st_size > 0
    assert "pass rate" in team.agensh("report", run.run_id).stdout
    assert "run is finished" in team.agensh("logs", "node").stdout
    again = team.agensh("up", str(team.spec), check=False)
    assert (again.returncode, f"`agensh clean {run.run_id}` removes them" in again.stderr) == (2, True)


@pytest.fixture
def stranger(team: Box) -> Iterator[set[tuple[str, str]]]:
    """What somebody else has in the engine, by kind and name."""
    client: docker.DockerClient = team.client
    container = client.containers.create(BASE, ["true"], name=STRANGER)
    network = client.networks.create(STRANGER, internal=True)
    volume = client.volumes.create(STRANGER)
    yield {("container", STRANGER), ("network", STRANGER), ("volume", STRANGER)}
    container.remove(force=True)
    network.remove()
    volume.remove()


def test_make_clean_removes_what_up_made_and_nothing_else(team: Box, stranger: set[tuple[str, str]]) -> None:
    # The Makefile's own target, in the team's folder, with our program where `make setup` would have put it.
    shutil.copy(ROOT / "Makefile", team.folder)
    program = team.folder / ".venv/bin/agensh"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m agensh "$@"\n')
    program.chmod(0o755)
    record = team.run().path / "report.json"
    owned = {kind for kind, name in team.listing().names if name.startswith(f"{TEAM}_")}
    assert owned == {"volume"}  # `down` has left the data, and that only
    done = subprocess.run(
        ["make", "clean"],
        cwd=team.folder,
        env=team.environment,
        capture_output=True,
        text=True,
        timeout=CALL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "removed the containers, networks and volumes of" in done.stdout
    assert stranger <= {(kind, name) for kind, name, _ in team.everything()}
    team.leaves_nothing(besides=stranger)
    assert record.exists()
    assert not program.exists()
