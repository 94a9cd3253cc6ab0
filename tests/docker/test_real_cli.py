"""Real CLIs in containers, behind the gateway, with the scripted model in a provider's place; and a wrong key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container

from adapters.scripted.reading import NOTICE_HEADER
from tests.docker.conftest import CALL, Box, until
from tests.docker.images import BASE
from tests.docker.real import PORT, RIGHT, WRONG, Provider, holders_of, make_team, name_key, running_provider

pytestmark = pytest.mark.timeout(1200)
PROJECT = "realcli"
HARNESS = "codex"
WORKERS = (f"{PROJECT}-worker1", f"{PROJECT}-worker2")
OTHERS = {"claude-code": "claude", "copilot": "copilot"}
"""The other CLIs, by harness: what a worker calls them."""


@pytest.fixture(scope="module")
def provider(images: dict[str, str]) -> Iterator[Provider]:
    """The provider, which takes one key."""
    with running_provider(images["AGENSH_IMAGE_SERVICE"]) as running:
        yield running


@pytest.fixture(scope="module")
def team(
    images: dict[str, str], reference: Path, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Box]:
    """A folder with the spec of two workers with a real CLI; not up yet."""
    yield from make_team(HARNESS, 2, images, reference, provider, tmp_path_factory.mktemp(PROJECT), PROJECT)


@pytest.fixture(scope="module")
def others(
    images: dict[str, str], reference: Path, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Box]]:
    """A team of one worker with each of the other CLIs, all brought up at once."""
    with ExitStack() as stack:
        boxes = {
            harness: stack.enter_context(
                contextmanager(make_team)(
                    harness, 1, images, reference, provider, tmp_path_factory.mktemp(harness), f"real{command}"
                )
            )
            for harness, command in OTHERS.items()
        }
        starts = []
        for box in boxes.values():
            name_key(box, RIGHT)
            starts.append(box.start("up", str(box.spec)))
        said = [process.communicate(timeout=CALL)[0] for process in starts]
        assert [process.returncode for process in starts] == [0] * len(starts), "\n".join(said)
        yield boxes


def status(box: Box) -> dict[str, Any]:
    """Return what `agensh status` says."""
    found: dict[str, Any] = json.loads(box.agensh("status", "--json").stdout)
    return found


def test_a_key_that_the_provider_refuses_ends_up_in_one_line(team: Box, provider: Provider) -> None:
    name_key(team, WRONG)
    refused = team.agensh("up", str(team.spec), check=False)
    assert refused.returncode == 1
    assert refused.stderr.strip().splitlines()[-1] == (
        f"agensh: gateway: {provider.url} refuses the key in AGENSH_PROVIDER_KEY (401: Incorrect API key provided); "
        "put it right in .env and call `agensh up` again."
    )
    assert WRONG not in refused.stdout + refused.stderr
    assert not any(name.startswith(f"{PROJECT}_{PROJECT}-worker") for name in team.listing().containers)
    name_key(team, RIGHT)
    assert "2 workers, codex" in team.agensh("up", str(team.spec)).stdout


def test_a_worker_has_its_own_key_and_no_way_to_the_provider(team: Box, provider: Provider) -> None:
    worker = WORKERS[0]
    until(lambda: team.in_worker(worker, f"pgrep -x {HARNESS}")[0] == 0, "the first worker's CLI")
    own = team.run().secrets().workers[worker].gateway_key
    ask = "curl -sS -m 5 -o /dev/null -w '%{http_code}' "
    assert team.in_worker(worker, f"{ask} http://gateway:8670/v1/models -H 'x-api-key: {own}'") == (0, "200")
    assert team.in_worker(worker, f"{ask} http://gateway:8670/v1/models -H 'x-api-key: {RIGHT}'") == (0, "401")
    inside = provider.container.attrs["NetworkSettings"]["IPAddress"]
    for place in (f"{provider.host}:{provider.port}", f"{inside}:{PORT}"):
        assert team.in_worker(worker, f"{ask} http://{place}/healthz")[0] != 0, place
    found = team.in_worker(worker, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1]
    assert own in found
    assert RIGHT not in found
    files = f"grep -rlaF '{RIGHT}' / --exclude-dir=proc --exclude-dir=sys 2>/dev/null"
    assert team.in_worker(worker, files)[1] == ""
    assert RIGHT not in json.dumps(team.container(worker).attrs)


def test_a_worker_has_the_tools_of_its_image_and_no_long_wait_for_names(team: Box) -> None:
    worker = WORKERS[0]
    image = dict(line.split("=", 1) for line in team.client.images.get(BASE).attrs["Config"]["Env"])
    (path,) = [
        line.removeprefix("PATH=")
        for line in team.in_worker(worker, f"tr '\\0' '\\n' </proc/$(pgrep -xo {HARNESS})/environ")[1].splitlines()
        if line.startswith("PATH=")
    ]
    assert path == image["PATH"]
    assert team.in_worker(worker, "grep -c 'timeout:2 attempts:2' /etc/resolv.conf") == (0, "1\n")


def test_a_worker_that_is_killed_in_a_turn_goes_on_in_its_session(team: Box) -> None:
    worker = WORKERS[0]
    sessions = team.run().worker(worker) / "home/.codex/sessions"
    until(lambda: any(sessions.rglob("*.jsonl")) and "function_call_output" in _said(sessions), "a turn with a call")
    (file,) = sessions.rglob("*.jsonl")
    container = team.container(worker)
    team.kill(worker)
    until(lambda: _restarted(team, worker, container), "its container runs again")
    size = len(file.read_text())
    until(lambda: len(file.read_text()) > size and "function_call_output" in file.read_text()[size:], "it goes on")
    assert list(sessions.rglob("*.jsonl")) == [file]
    assert "You were interrupted and go on in the same session" in file.read_text()[size:]


def test_a_key_that_is_revoked_parks_the_workers_and_a_right_one_lets_them_go_on(team: Box) -> None:
    # The provider's side changes: what it took until now it refuses.
    gateway = team.container("gateway")
    name_key(team, WRONG)
    refused = team.agensh("up", str(team.spec), check=False)
    assert refused.returncode == 1
    assert "refuses the key in AGENSH_PROVIDER_KEY" in refused.stderr
    until(lambda: set(status(team)["parked"]) == set(WORKERS), "both are parked")
    assert team.container("gateway").id != gateway.id
    shown = team.agensh("status").stdout
    for worker in WORKERS:
        assert f"parked: {worker}: auth: " in shown
    remedy = "The provider refuses the key: put it right in AGENSH_PROVIDER_KEY in .env, then call `agensh up` again."
    assert remedy in shown
    assert remedy in team.agensh("report").stdout
    assert WRONG not in shown
    name_key(team, RIGHT)
    assert "parked until now, goes on" in team.agensh("up", str(team.spec)).stdout
    until(lambda: status(team)["parked"] == {}, "nobody is parked")
    until(lambda: "busy" in status(team)["workers"].values(), "one of them works")


def test_the_team_merges_work_and_the_report_has_its_price(team: Box) -> None:
    def figures() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(team.agensh("report", "--json").stdout)
        return found

    until(lambda: figures()["merges"] >= 1 and figures()["notices_mid_turn"] >= 1, "a merge, and a notice in a turn")
    team.agensh("down")
    run = team.run()
    report = json.loads((run.path / "report.json").read_text())
    assert (report["parked"], report["events_dead"]) == ({}, 0)
    assert report["merges"] >= 1
    assert report["notices_mid_turn"] >= 1
    assert report["tokens"]["input"] > report["tokens"]["output"] > 0
    assert report["cost_usd"] > 0
    said = "".join(_said(run.worker(worker) / "home/.codex/sessions") for worker in WORKERS)
    assert NOTICE_HEADER in said
    assert holders_of(RIGHT, team) == []


def test_clean_leaves_nothing(team: Box) -> None:
    team.agensh("clean")
    team.leaves_nothing()


@pytest.mark.parametrize("harness", OTHERS)
def test_each_cli_works_in_its_container_and_leaves_nothing(others: dict[str, Box], harness: str) -> None:
    box, command = others[harness], OTHERS[harness]
    worker = f"{box.project}-worker1"
    until(lambda: box.in_worker(worker, f"pgrep -f ^/usr/local/bin/{command}")[0] == 0, "its CLI")
    found = box.in_worker(worker, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1]
    assert box.run().secrets().workers[worker].gateway_key in found
    assert RIGHT not in found + json.dumps(box.container(worker).attrs)

    def figures() -> dict[str, Any]:
        said: dict[str, Any] = json.loads(box.agensh("report", "--json").stdout)
        return said

    until(lambda: figures()["merges"] >= 1, "a merge")
    volumes = box.volumes()
    box.agensh("down")
    run = box.run()
    report = json.loads((run.path / "report.json").read_text())
    assert (report["harness"], report["parked"], report["events_dead"], report["turns_failed"]) == (harness, {}, 0, 0)
    assert report["merges"] >= 1
    assert report["events_delivered"] >= 1
    assert report["entries"]["CLAIM"] >= 1
    assert report["tokens"]["input"] > report["tokens"]["output"] > 0
    assert report["cost_usd"] > 0
    assert holders_of(RIGHT, box) == []
    box.agensh("clean")
    box.leaves_nothing(volumes)


def _said(sessions: Path) -> str:
    return "".join(file.read_text() for file in sorted(sessions.rglob("*.jsonl")))


def _restarted(box: Box, worker: str, former: Container) -> bool:
    now = box.container(worker)
    return now.status == "running" and now.attrs["State"]["StartedAt"] != former.attrs["State"]["StartedAt"]
