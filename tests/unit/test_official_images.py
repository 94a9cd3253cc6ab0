"""compose.yaml fits the official images, which no test here can run: what they have and what they keep."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from agensh.launch.compose.dry_run import OFFICIAL, VOLUMES, default_image
from agensh.launch.compose.engine import compose_file

PROGRAMS = {"mysql": "mysqladmin", "postgres": "pg_isready", "gitea": "curl"}
"""What the check of a service uses, of the programs in its image, which has a shell."""
WITHOUT_SHELL = {"mattermost": ["/mattermost/bin/mmctl", "system", "status", "--local"]}
"""Images with neither a shell nor curl, and the check that they bring themselves."""
DECLARED = {
    "mysql": {"/var/lib/mysql"},
    "postgres": {"/var/lib/postgresql/data"},
    "gitea": {"/data"},
    "mattermost": {
        "/mattermost/data",
        "/mattermost/logs",
        "/mattermost/config",
        "/mattermost/plugins",
        "/mattermost/client/plugins",
    },
}
"""VOLUME of each image."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose_file().read_text())
    return found


def test_a_check_uses_what_the_image_has(document: dict[str, Any]) -> None:
    for service, program in PROGRAMS.items():
        kind, command = document["services"][service]["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        assert program in command
    for service, program_and_arguments in WITHOUT_SHELL.items():
        assert document["services"][service]["healthcheck"]["test"] == ["CMD", *program_and_arguments]
    assert document["services"]["mattermost"]["environment"]["MM_SERVICESETTINGS_ENABLELOCALMODE"] == "true"


def test_a_check_does_not_take_the_first_starts_passing_server_for_the_real_one(document: dict[str, Any]) -> None:
    for service in ("mysql", "postgres"):  # while they make their database they listen on a Unix socket alone
        assert "-h 127.0.0.1" in document["services"][service]["healthcheck"]["test"][1]


def test_postgres_has_room_for_all_that_its_clients_may_open(document: dict[str, Any]) -> None:
    services = document["services"]
    opened = int(services["gitea"]["environment"]["GITEA__database__MAX_OPEN_CONNS"])
    opened += int(services["mattermost"]["environment"]["MM_SQLSETTINGS_MAXOPENCONNS"])
    flag, _, most = services["postgres"]["command"][1].partition("=")
    assert flag == "max_connections"
    assert opened + 3 < int(most) < services["postgres"]["pids_limit"]  # three are kept for the superuser


def test_no_volume_of_an_image_is_left_nameless_when_its_container_goes(document: dict[str, Any]) -> None:
    for service, declared in DECLARED.items():
        settings = document["services"][service]
        volumes = {volume.split(":")[1] for volume in settings["volumes"]}
        volumes |= {mount.partition(":")[0] for mount in settings.get("tmpfs", ())}
        assert declared <= volumes, service


def test_the_plan_knows_the_volumes_and_images(document: dict[str, Any]) -> None:
    assert set(document["volumes"]) == set(VOLUMES)
    for service in OFFICIAL:
        assert default_image(service) in document["services"][service]["image"]
