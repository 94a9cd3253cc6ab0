"""The engine that the tests start, and the images that they leave."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from tests.docker.engine import Engine, answers, start_engine
from tests.docker.images import BASE, remove_old

PREFIX = "agensh-old-images"


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Engine]:
    """An engine of its own: in other folders, and in a network of its own, for it makes and removes bridges."""
    folders = ("--data-root", str(tmp_path / "data"), "--exec-root", str(tmp_path / "exec"))
    command = ("unshare", "--net", "dockerd", *folders, "--pidfile", str(tmp_path / "pid"))
    engine = start_engine(tmp_path / "log", f"unix://{tmp_path}/engine.sock", command)
    yield engine
    engine.kill()


def test_an_engine_that_was_started_is_stopped_with_all_its_processes(second: Engine, tmp_path: Path) -> None:
    def processes() -> str:
        return subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout

    assert answers(second.host)
    assert len(processes().split()) >= 2  # it, and its containerd
    assert second.stop()
    assert second.process.returncode == 0
    assert processes() == ""
    assert not answers(second.host)


@pytest.fixture
def names(images: dict[str, str]) -> Iterator[list[str]]:
    """Three more names of the base image, the last of them that of a container."""
    client = docker.from_env()
    base = client.images.get(BASE)
    made = [
        f"{PREFIX}/{name}" for name in ("service:in-use-by-this-session", "service:former", "worker:of-a-container")
    ]
    for name in made:
        base.tag(name)
    container = client.containers.create(made[2], ["true"])
    yield made
    container.remove()
    for name in made:
        try:
            client.images.remove(name)
        except ImageNotFound:
            continue
    client.close()


def test_images_of_former_sources_are_removed_when_nobody_needs_them(names: list[str]) -> None:
    ours, former, _ = names
    now = datetime.now(UTC)
    assert remove_old({ours}, now, PREFIX) == []  # somebody may be at work with them
    assert remove_old({ours}, now + timedelta(days=2), PREFIX) == [former]
    assert remove_old({ours}, now + timedelta(days=2), PREFIX) == []
