"""What is asked of the engine and of Compose, against an engine that only lists."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound, NotFound

from agensh.errors import AgenshError, UsageError
from agensh.launch.compose import dry_run
from agensh.launch.compose.dry_run import plan_lines
from agensh.launch.compose.engine import POOL, Compose, build_image, check_ports, choose_subnets, compose_file
from agensh.launch.compose.plan import container_plan
from agensh.launch.compose.project import create_project_run
from agensh.spec import load_spec
from tests.support.clock import ManualClock

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"AGENSH_PROVIDER_KEY": "sk-not-a-real-key"}


class ListingEngine:
    """An engine with networks, volumes and images, none of which can be changed."""

    def __init__(self, networks: dict[str, str] | None = None, volumes: tuple[str, ...] = ()) -> None:
        self._networks = networks or {}
        self._volumes = volumes
        self.networks = SimpleNamespace(list=self._list)
        self.volumes = SimpleNamespace(get=self._volume)
        self.images = SimpleNamespace(get=self._image)

    def _list(self) -> list[Any]:
        return [
            SimpleNamespace(name=name, attrs={"IPAM": {"Config": [{"Subnet": subnet}] if subnet else None}})
            for name, subnet in self._networks.items()
        ]

    def _volume(self, name: str) -> str:
        if name not in self._volumes:
            raise NotFound("no such volume")
        return name

    def _image(self, name: str) -> str:
        raise ImageNotFound(name)


def client(networks: dict[str, str] | None = None, volumes: tuple[str, ...] = ()) -> Any:
    return ListingEngine(networks, volumes)


POOL_OF_TESTS = "198.18.0.0/15"  # for benchmarks of devices (RFC 2544): no route of this box


def test_a_second_project_gets_networks_of_its_own() -> None:
    first = choose_subnets(client(), "one", POOL_OF_TESTS)
    assert (first.services, first.egress, first.team) == ("198.18.0.0/26", "198.18.0.64/26", "198.18.1.0/24")
    taken = {f"one_{part}": getattr(first, part) for part in ("services", "egress", "team")}
    assert choose_subnets(client(taken), "one", POOL_OF_TESTS) == first
    second = choose_subnets(client(taken), "two", POOL_OF_TESTS)
    assert second.team == "198.18.3.0/24"


def test_twenty_teams_come_and_go_on_one_box() -> None:
    there: dict[str, str] = {}
    for turn in range(3):
        for number in range(20):
            found = choose_subnets(client(there), f"t{turn}-{number}", POOL_OF_TESTS)
            there |= {f"t{turn}-{number}_{part}": getattr(found, part) for part in ("services", "egress", "team")}
        networks = [IPv4Network(subnet) for subnet in there.values()]
        assert len(networks) == 60
        assert not any(one.overlaps(other) for one, other in combinations(networks, 2))
        # What went is free for those who come: the range does not wear off.
        assert all(network.subnet_of(IPv4Network("198.18.0.0/18")) for network in networks)
        there.clear()


def test_a_half_made_project_and_networks_without_subnet_are_no_hindrance() -> None:
    engine = client({"one_team": "198.18.1.0/24", "host": "", "six": "fd00::/64"})
    assert choose_subnets(engine, "one", POOL_OF_TESTS).team == "198.18.3.0/24"


def test_no_network_left() -> None:
    with pytest.raises(AgenshError, match=r"^networks: no free /23 is left in 198.18.0.0/23.*AGENSH_NETWORKS"):
        choose_subnets(client({"other": "198.18.0.0/16"}), "one", "198.18.0.0/23")


@pytest.mark.parametrize("text", ["x", "198.18.0.1/15", "198.18.0.0/24"])
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=f"^AGENSH_NETWORKS: '{text}'"):
        choose_subnets(client(), "one", text)


def test_the_default_range_is_private() -> None:
    assert POOL.is_private


def test_a_port_that_is_taken_is_named_with_its_variable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^AGENSH_PORT_GITEA: port {port} on 127\.0\.0\.1 cannot be used"):
            check_ports({"AGENSH_PORT_GITEA": port})
    check_ports({"AGENSH_PORT_GITEA": port})


def test_compose_fails_in_one_line_and_sees_no_variable_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENSH_RUN", "/elsewhere")
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere.yaml")
    script = tmp_path / "compose"
    script.write_text(
        '#!/bin/sh\necho "$*"\necho "run=$AGENSH_RUN file=$COMPOSE_FILE profiles=$COMPOSE_PROFILES"\nexit 3\n'
    )
    script.chmod(0o755)
    compose = Compose("one", tmp_path / "env", (str(script),))
    said = compose.call("up", "-d", profiles=["gateway"], check=False)
    assert f"--env-file {tmp_path}/env -f {compose_file()} -p one up -d" in said
    assert "run= file= profiles=gateway" in said
    with pytest.raises(AgenshError, match=r"^compose up failed \(3\): .*profiles=$") as raised:
        compose.call("up")
    assert "\n" not in str(raised.value)


def test_an_image_without_a_docker_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgenshError, match=r"^image x cannot be built: the docker command is missing"):
        build_image("x", "service.Dockerfile", arguments={}, context=tmp_path)


def test_the_plan_names_all_that_would_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "connect", client)
    spec = load_spec(ROOT / "team.example.toml")
    environment = {"AGENSH_NETWORKS": POOL_OF_TESTS, "AGENSH_PORT_BOARD": "9999", "AGENSH_IMAGE_WORKER": "mine:1"}
    lines = list(plan_lines(spec, tmp_path, None, environment))
    text = "\n".join(lines)
    assert lines[0] == f"project demo: a new run below {tmp_path}"
    for part in ("network demo_team: 198.18.1.0/24", "volume demo_postgres", "service gateway", "service node"):
        assert part in lines
    assert "image of workers: mine:1 (would be built or pulled)" in lines
    assert "image of mysql: mysql:8.4 (would be pulled)" in lines
    assert "port 127.0.0.1:9999 (AGENSH_PORT_BOARD)" in lines
    assert text.count("container demo_demo-worker") == 8
    assert "codex, all cores, 64 GiB, 4096 processes" in text
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_variables_comes_before_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "connect", client)
    spec = load_spec(ROOT / "team.example.toml")
    for variable, value in (("AGENSH_PORT_GITEA", "99999"), ("AGENSH_NETWORKS", "198.18.0.0/24")):
        with pytest.raises(UsageError, match=f"^{variable}: "):
            next(iter(plan_lines(spec, tmp_path, None, {"AGENSH_NETWORKS": POOL_OF_TESTS, variable: value})))


def test_a_worker_container_has_what_the_spec_says(tmp_path: Path) -> None:
    spec = load_spec(ROOT / "team.example.toml", {"container.cpus": 2, "container.memory": "8g"})
    run = create_project_run(spec, tmp_path, ManualClock(), images={"worker": "mine:1"}, environment=ENVIRONMENT)
    plan = container_plan(run, run.info())
    assert (plan.image, plan.network, plan.cpus, plan.memory) == ("mine:1", "demo_team", 2, 8 << 30)
    assert plan.reference is not None
    assert plan.reference.is_relative_to(run.path / "task")
    assert plan.files == {}
    assert plan.name_of("demo-worker3") == "demo_demo-worker3"
