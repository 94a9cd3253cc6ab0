"""A team of eight in containers from `up` to `clean`, with kills in mid-run, and what a worker can reach."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from threading import Thread

import pytest

from agensh.runs.record import load_record
from tests.docker.conftest import Box, Listing, make_box
from tests.docker.images import BASE

pytestmark = pytest.mark.timeout(1500)
PROJECT = "dockerteam"
SPEED = "60"  # six hours are six minutes
WORKER = f"{PROJECT}-worker1"
WAIT = 300.0


def until(condition: Callable[[], bool], what: str, seconds: float = WAIT) -> None:
    """Wait for a condition of another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def before() -> list[Listing]:
    """What the engine had before the team."""
    return []


@pytest.fixture(scope="module")
def team(images: dict[str, str], reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """The team, up, with workers at work."""
    made = make_box(images, reference, tmp_path_factory.mktemp("team"), PROJECT)
    box = next(made)
    box.agensh("up", str(box.spec), "--speed", SPEED)
    until(lambda: sum(f"{PROJECT}_" in name for name in box.listing().containers) >= 8 + 6, "eight workers")
    yield box
    with pytest.raises(StopIteration):
        next(made)


def test_a_worker_the_node_host_and_the_database_are_killed_and_come_back(team: Box) -> None:
    until(lambda: team.in_worker(WORKER, "pgrep -f adapters.scripted")[0] == 0, "the first worker works")
    for name in (WORKER, "node", "mysql"):
        started = team.container(name).attrs["State"]["StartedAt"]
        team.kill(name)
        until(lambda: _again(team, name, started), f"{name} is back")  # noqa: B023
    until(lambda: team.container("node").attrs["State"]["Health"]["Status"] == "healthy", "the node host answers")
    until(lambda: team.in_worker(WORKER, "pgrep -f adapters.scripted")[0] == 0, "the first worker works again")


def _again(box: Box, name: str, started: str) -> bool:
    state = box.container(name).attrs["State"]
    return bool(state["Status"] == "running" and state["StartedAt"] != started)


def test_services_are_on_loopback_only_and_no_secret_is_where_a_worker_looks(team: Box) -> None:
    run = team.run()
    secrets = run.secrets()
    for service in ("mysql", "postgres", "gitea", "mattermost", "board", "node"):
        ports = team.container(service).attrs["NetworkSettings"]["Ports"] or {}
        for bindings in ports.values():
            assert all(binding["HostIp"] == "127.0.0.1" for binding in bindings or [])
    for name in ("secrets", "secrets.json"):
        assert (run.path / name).stat().st_mode & 0o077 == 0
    values = (run.path / "compose.env").read_text() + json.dumps(team.container(WORKER).attrs)
    for secret in (secrets.board_db, secrets.board_admin, secrets.node_admin, secrets.forge_admin.password):
        assert secret
        assert secret not in values


def test_the_reference_can_be_run_and_not_be_read(team: Box) -> None:
    path = "/opt/pbench/executable"
    assert team.in_worker(WORKER, f"{path} seq 3") == (0, "1\n2\n3\n")
    assert team.in_worker(WORKER, f"stat -c '%u:%g %a' {path}") == (0, "0:0 111\n")
    for attempt in (
        f"cat {path}",
        f"cp {path} /tmp/copy",
        f"dd if={path} of=/dev/null",
        f"gdb -batch -ex 'dump memory /tmp/d 0x400000 0x401000' -ex run {path}; test -s /tmp/d",
        f"head -c 4 {path} | grep -q ELF",
        f"chmod u+r {path}",
    ):
        code, output = team.in_worker(WORKER, attempt)
        assert code != 0, f"{attempt}: {output}"


def test_a_worker_reaches_its_services_and_nothing_else(team: Box) -> None:
    reach = "curl -sS -m 5 -o /dev/null -w '%{http_code}' "
    for url in ("http://gitea:3000/api/v1/version", "http://mattermost:8065/api/v4/system/ping"):
        assert team.in_worker(WORKER, reach + url)[0] == 0
    assert team.in_worker(WORKER, reach + "http://node:8700/healthz") == (0, "200")
    for closed in (
        "http://mysql:3306",
        "http://board:8660/healthz",
        "http://postgres:5432",
    ):
        assert team.in_worker(WORKER, reach + closed)[0] != 0, closed
    # What stands on another network stands for the internet: the way there begins in the same way.
    outside = team.client.containers.run(BASE, ["python3", "-m", "http.server", "8000"], detach=True)
    try:
        outside.reload()
        there = f"http://{outside.attrs['NetworkSettings']['IPAddress']}:8000/"
        until(
            lambda: subprocess.run(["curl", "-sf", "-o", "/dev/null", there], check=False).returncode == 0, "a server"
        )
        assert team.in_worker(WORKER, reach + there)[0] != 0
    finally:
        outside.remove(force=True)
    board = team.container("board").attrs["NetworkSettings"]["Networks"]
    for network in board.values():
        assert team.in_worker(WORKER, reach + f"http://{network['IPAddress']}:8660/healthz")[0] != 0
    with ThreadingHTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as box:
        Thread(target=box.serve_forever, daemon=True).start()
        for network in team.client.networks.list(names=[f"{PROJECT}_"]):
            address = next(IPv4Network(network.attrs["IPAM"]["Config"][0]["Subnet"]).hosts())
            assert team.in_worker(WORKER, reach + f"http://{address}:{box.server_port}/")[0] != 0, network.name
        box.shutdown()
    assert team.in_worker(WORKER, "test -e /var/run/docker.sock -o -e /run/docker.sock")[0] != 0
    assert team.in_worker(WORKER, reach + "http://node:8700/status")[1] == "401"


def test_a_worker_has_its_own_tokens_and_no_peers(team: Box) -> None:
    run = team.run()
    secrets = run.secrets()
    own, peer = secrets.workers[WORKER], secrets.workers[f"{PROJECT}-worker2"]
    script = 'curl -s -o /dev/null -w "%{http_code}" -H "Authorization: token $(cat ' + str(run.worker(WORKER))
    script += '/home/.config/agensh/forge-token)" http://gitea:3000/api/v1/user'
    assert team.in_worker(WORKER, script) == (0, "200")
    found = team.in_worker(WORKER, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1]
    assert own.mcp_token in found
    files = f"grep -rlaF {peer.forge_token} / --exclude-dir=proc --exclude-dir=sys 2>/dev/null"
    assert team.in_worker(WORKER, files)[1] == ""
    for secret in (peer.mcp_token, peer.forge_token, secrets.board_admin, secrets.node_admin):
        assert secret not in found
    assert (
        team.in_worker(WORKER, f"ls {run.path}")[0] != 0 or "secrets" not in team.in_worker(WORKER, f"ls {run.path}")[1]
    )


def test_a_worker_is_confined(team: Box) -> None:
    host = team.container(WORKER).attrs["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["ReadonlyRootfs"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["Memory"] == 64 * 2**30
    assert host["PidsLimit"] == 4096
    assert not host["Privileged"]


def test_the_team_is_looked_at_frozen_and_taken_out(team: Box, tmp_path: Path) -> None:
    status = json.loads(team.agensh("status", "--json").stdout)
    assert (status["live"], len(status["workers"])) == ("running", 8)
    assert status["left_s"] > 0
    assert status["urls"]["gitea"] == f"http://127.0.0.1:{team.environment['AGENSH_PORT_GITEA']}"
    assert "run is active" in team.agensh("logs", "node", "-n", "0").stdout
    assert "the run's clock goes on (" in team.agensh("pause").stdout
    assert team.container(WORKER).status == "paused"
    assert json.loads(team.agensh("status", "--json").stdout)["live"] == "paused"
    assert "goes on" in team.agensh("resume").stdout
    team.agensh("export", "--to", str(tmp_path / "out"))
    for name in ("workspace.bundle", "submission.tar.gz", "report.json", "run.json", "record/runtime.json"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert team.run().secrets().node_admin not in (tmp_path / "out/run.json").read_text()


def test_up_again_changes_nothing(team: Box) -> None:
    names = team.listing()
    node = team.container("node").id
    assert "going on" in team.agensh("up", str(team.spec), "--speed", SPEED).stdout
    assert team.listing() == names
    assert team.container("node").id == node


async def test_the_run_ends_with_nothing_lost(team: Box) -> None:
    run = team.run()
    until((run.path / "ended").exists, "the end of the run", 900)
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
    assert not any(name.startswith((f"{PROJECT}_", f"{PROJECT}-")) for name in team.listing().containers)
    run = team.run()
    for name in ("report.json", "submission.tar.gz", "workspace.bundle", "record/entries.json"):
        assert (run.path / name).stat().st_size > 0
    assert "pass rate" in team.agensh("report", run.run_id).stdout
    assert "run is finished" in team.agensh("logs", "node").stdout
    again = team.agensh("up", str(team.spec), check=False)
    assert (again.returncode, f"`agensh clean {run.run_id}` removes them" in again.stderr) == (2, True)
