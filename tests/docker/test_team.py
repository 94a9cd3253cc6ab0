"""A team of eight in containers at work: what it takes, kills in mid-run, looks at it, a pause, a second `up`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docker.conftest import FIGURES, SPEED, TEAM, Box, until

pytestmark = pytest.mark.timeout(900)
WORKER = f"{TEAM}-worker1"
UP = 90.0  # seconds from `agensh up` to healthy services and eight workers provisioned, on two cores for itself
HELD = 300 * 10**6  # bytes that all processes of Agensh may hold for eight workers
OURS = ("board", "gateway", "node")


def test_the_team_is_up_in_time(team: Box) -> None:
    # Where others are at work too it takes its turn: as much longer as more processes than cores wanted to run.
    assert team.up_seconds <= UP * max(1.0, team.up_load)
    services = (*OURS, "mysql", "postgres", "gitea", "mattermost")
    assert {team.container(name).attrs["State"]["Health"]["Status"] for name in services} == {"healthy"}
    assert len(team.run().secrets().workers) == 8


def test_a_worker_the_node_host_and_the_database_are_killed_and_come_back(team: Box) -> None:
    until(lambda: _works(team), "the first worker works")
    for name in (WORKER, "node", "mysql"):
        started = team.container(name).attrs["State"]["StartedAt"]
        team.kill(name)
        until(lambda: _again(team, name, started), f"{name} is back")  # noqa: B023
    until(lambda: team.container("node").attrs["State"]["Health"]["Status"] == "healthy", "the node host answers")
    until(lambda: _works(team), "the first worker works again")


def _works(box: Box) -> bool:
    return box.in_worker(WORKER, "pgrep -f adapters.scripted")[0] == 0


def _again(box: Box, name: str, started: str) -> bool:
    state = box.container(name).attrs["State"]
    return bool(state["Status"] == "running" and state["StartedAt"] != started)


def test_what_all_processes_of_agensh_hold(team: Box) -> None:
    def works(worker: str) -> bool:
        return team.in_worker(worker, "pgrep -f adapters.scripted")[0] == 0

    until(lambda: all(works(f"{TEAM}-worker{number}") for number in range(1, 9)), "all eight work")
    held = {service: _held(team, service) for service in OURS}
    text = ", ".join(f"{service} {size / 1e6:.0f}" for service, size in held.items())
    launcher = team.up_bytes
    FIGURES.append(f"memory for 8 workers: {sum(held.values()) / 1e6:.0f} MB ({text}); up held {launcher / 1e6:.0f} MB")
    assert all(held.values())
    assert sum(held.values()) <= HELD


def _held(box: Box, service: str) -> int:
    """Return the bytes of memory that the processes of a container hold, what several share divided among them."""
    total = 0
    for fields in box.container(service).top(ps_args="-eo pid")["Processes"]:
        try:
            text = Path(f"/proc/{fields[0]}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):  # a health check that has ended
            continue
        total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
    return total


def test_the_team_is_looked_at_frozen_and_taken_out(team: Box, tmp_path: Path) -> None:
    # A node host that does not answer in five seconds is shown as such: where others are at work too it is asked again.
    status: dict[str, Any] = {}

    def told() -> bool:
        status.update(_status(team))
        return len(status["workers"]) == 8

    until(told, "the node host tells of its workers")
    assert status["live"] == "running"
    assert status["left_s"] > 0
    assert status["urls"]["gitea"] == f"http://127.0.0.1:{team.environment['AGENSH_PORT_GITEA']}"
    assert "run is active" in team.agensh("logs", "node", "-n", "0").stdout
    assert "the run's clock goes on (" in team.agensh("pause").stdout
    assert team.container(WORKER).status == "paused"
    assert _status(team)["live"] == "paused"
    assert "goes on" in team.agensh("resume").stdout
    team.agensh("export", "--to", str(tmp_path / "out"))
    for name in ("workspace.bundle", "submission.tar.gz", "report.json", "run.json", "record/runtime.json"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert team.run().secrets().node_admin not in (tmp_path / "out/run.json").read_text()


def _status(box: Box) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(box.agensh("status", "--json").stdout)
    return status


def test_up_again_changes_nothing(team: Box) -> None:
    def ours() -> set[tuple[str, str]]:
        return {(kind, name) for kind, name in team.listing().names if name.startswith(f"{TEAM}_")}

    names = ours()
    node = team.container("node").id
    assert "going on" in team.agensh("up", str(team.spec), "--speed", SPEED).stdout
    assert ours() == names
    assert team.container("node").id == node
