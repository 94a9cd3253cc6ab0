"""compose.yaml is what Compose takes, and keeps the promises about networks, ports and secrets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from agensh.launch.compose.engine import compose_command, compose_file

SCHEMA = Path("/usr/lib/python3/dist-packages/compose/config/compose_spec.json")
"""The Compose specification's schema, as Debian's docker-compose has it."""
WORKERS_REACH = {"gitea", "mattermost", "gateway", "node"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The file as it is written."""
    found: dict[str, Any] = yaml.safe_load(compose_file().read_text())
    return found


def test_it_follows_the_specification(document: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert "name" not in document  # docker-compose 1.29 does not know it


def test_compose_takes_it_and_nothing_but_the_run_is_mounted(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    for name in ("mysql", "postgres", "gitea", "mattermost", "gateway"):
        (tmp_path / "secrets" / f"{name}.env").write_text("")
    variables = tmp_path / "compose.env"
    variables.write_text(f"AGENSH_RUN={tmp_path}\nAGENSH_PORT_GITEA=3999\n")
    command = [*compose_command(), "--env-file", str(variables), "-f", str(compose_file()), "-p", "one"]
    done = subprocess.run([*command, "config"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert "3999" in json.dumps(services["gitea"]["ports"])
    for service, settings in services.items():
        for volume in settings.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.partition(":")[0]
            allowed = source in document["volumes"] or source.startswith(str(tmp_path))
            assert allowed or (service == "node" and source == "/var/run/docker.sock"), (service, source)


def test_without_a_run_it_says_how_it_is_started(tmp_path: Path) -> None:
    variables = tmp_path / "compose.env"
    variables.write_text("")
    command = [*compose_command(), "--env-file", str(variables), "-f", str(compose_file()), "-p", "one"]
    done = subprocess.run([*command, "config"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "start it with agensh up" in done.stderr


def test_images_are_pinned_and_can_be_replaced(document: dict[str, Any]) -> None:
    for service, settings in document["services"].items():
        variable, _, default = settings["image"].removeprefix("${").removesuffix("}").partition(":-")
        assert variable.startswith("AGENSH_IMAGE_"), service
        assert default.rpartition(":")[2] not in {"", "latest"}, service


def test_every_service_has_bounds(document: dict[str, Any]) -> None:
    for service, settings in document["services"].items():
        assert settings["mem_limit"], service
        assert settings["pids_limit"], service
        assert settings["logging"]["options"]["max-size"], service
        assert service == "provision" or settings["healthcheck"]["test"], service


def test_our_services_have_an_init_and_no_container_a_fixed_name(document: dict[str, Any]) -> None:
    ours = [settings for settings in document["services"].values() if "AGENSH_IMAGE_SERVICE" in settings["image"]]
    assert len(ours) == 4
    assert all(settings["init"] is True for settings in ours)
    # A name for all projects would be taken by the first.
    assert not [service for service, settings in document["services"].items() if "container_name" in settings]


def test_networks_are_those_that_are_promised(document: dict[str, Any]) -> None:
    services = document["services"]
    assert {name for name, settings in services.items() if "team" in settings["networks"]} == WORKERS_REACH
    assert {name for name, settings in services.items() if "egress" in settings["networks"]} == {"gateway"}
    networks = document["networks"]
    assert networks["team"]["internal"] is True
    assert networks["team"]["driver_opts"]["com.docker.network.bridge.inhibit_ipv4"] == "true"
    assert networks["services"]["driver_opts"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"


def test_the_way_out_of_the_gateway_is_the_egress_network(document: dict[str, Any]) -> None:
    # Of several networks that are not internal the engine takes the first by name for the default route.
    networks = document["networks"]
    out = [name for name in document["services"]["gateway"]["networks"] if not networks[name].get("internal")]
    assert min(out) == "egress"


def test_ports_are_on_loopback(document: dict[str, Any]) -> None:
    for settings in document["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in settings.get("ports", []))


def test_no_secret_is_in_the_file(document: dict[str, Any]) -> None:
    for service, settings in document["services"].items():
        for name in settings.get("environment", {}):
            assert not any(word in name for word in ("PASSW", "SECRET_KEY", "DATASOURCE", "API_KEY")), (service, name)


def test_mysql_keeps_no_binary_log_and_is_asked_by_the_program_its_image_has(document: dict[str, Any]) -> None:
    mysql = document["services"]["mysql"]
    assert "--skip-log-bin" in mysql["command"]
    _, asked = mysql["healthcheck"]["test"]
    for program in ("mysqladmin", "mariadb-admin"):
        assert program in asked
