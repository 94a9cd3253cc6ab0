"""What keeps a team from coming up is one sentence, with the right exit code, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from agensh.errors import AgenshError
from agensh.launch.compose.engine import build_image
from agensh.launch.ports import free_ports
from tests.docker.images import ROOT

PROJECT = "refused"


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody in a folder with the example spec, a key and free ports."""

    folder: Path
    environment: dict[str, str]

    def up(self, *arguments: str, **changes: str) -> tuple[int, str]:
        """Call `agensh up`; return its exit code and what it said on standard error."""
        done = self.call(*arguments, **changes)
        return done.returncode, done.stderr

    def call(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Call `agensh up`."""
        return subprocess.run(
            [sys.executable, "-m", "agensh", "up", *arguments],
            cwd=self.folder,
            env=self.environment | changes,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def refused(self, *arguments: str, code: int, **changes: str) -> str:
        """Call `agensh up` and return the sentence with which it refuses."""
        found, said = self.up(*arguments, **changes)
        assert found == code, said
        lines = said.strip().splitlines()
        assert len(lines) == 1, said
        assert lines[0].startswith("agensh: ")
        assert "Traceback" not in said
        return lines[0].removeprefix("agensh: ")

    def runs(self) -> list[Path]:
        """Return the run folders."""
        return list((self.folder / "runs").glob("*"))


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    """The newcomer; the engine has the same before and after."""
    shutil.copytree(ROOT / "examples/textutils", tmp_path / "examples/textutils")
    spec = (ROOT / "team.example.toml").read_text()
    (tmp_path / "team.toml").write_text(spec.replace('name = "demo"', f'name = "{PROJECT}"'))
    (tmp_path / ".env").write_text("AGENSH_PROVIDER_KEY=sk-not-a-real-key\n")
    ports = zip(("GITEA", "MATTERMOST", "BOARD"), free_ports(3), strict=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")}
    yield Newcomer(tmp_path, kept | {f"AGENSH_PORT_{name}": str(port) for name, port in ports})
    client = docker.from_env()
    try:
        assert [each.name for each in client.containers.list(all=True) if PROJECT in str(each.name)] == []
        assert [each.name for each in client.networks.list() if PROJECT in str(each.name)] == []
        assert [each.name for each in client.volumes.list() if PROJECT in str(each.name)] == []
    finally:
        client.close()


def test_the_plan_of_the_example(newcomer: Newcomer) -> None:
    code, said = newcomer.up("--dry-run")
    assert (code, said) == (0, "")
    assert newcomer.runs() == []


def test_a_port_that_is_taken(newcomer: Newcomer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = newcomer.refused(code=2, AGENSH_PORT_MATTERMOST=port)
    assert said.startswith(f"AGENSH_PORT_MATTERMOST: port {port} on 127.0.0.1 cannot be used")
    assert newcomer.runs() == []


def test_no_engine(newcomer: Newcomer) -> None:
    for arguments in ((), ("--dry-run",)):
        said = newcomer.refused(*arguments, code=1, DOCKER_HOST=f"unix://{newcomer.folder}/none.sock")
        assert said.startswith("The Docker engine does not answer (No such file or directory); ")
        assert "systemctl start docker" in said
    assert newcomer.runs() == []


def test_a_full_disk(newcomer: Newcomer) -> None:
    small = newcomer.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        said = newcomer.refused("--runs", str(small / "runs"), code=1)
        assert said.startswith("disk: 0.0 GiB are free")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_missing_credential(newcomer: Newcomer) -> None:
    (newcomer.folder / ".env").write_text("AGENSH_PROVIDER_KEY=\n")
    said = newcomer.refused(code=2)
    assert said.startswith("gateway.api_key_env: the environment variable 'AGENSH_PROVIDER_KEY' is not set")
    assert newcomer.runs() == []


def test_a_line_of_env_that_is_none(newcomer: Newcomer) -> None:
    (newcomer.folder / ".env").write_text("AGENSH_PORT_BOARD=9000\nsk-a-key-without-its-name\n")
    said = newcomer.refused(code=2)
    assert said.startswith(".env: line 2 is not NAME=value")
    assert "sk-a-key" not in said


def test_an_image_that_is_nowhere(newcomer: Newcomer) -> None:
    image = "127.0.0.1:1/agensh/none:1"
    said = newcomer.refused(code=1, AGENSH_IMAGE_SERVICE=image)
    assert said.startswith(f"AGENSH_IMAGE_SERVICE: the image '{image}' is not on this box and cannot be pulled")


def test_a_reference_that_workers_can_read_is_told(newcomer: Newcomer) -> None:
    done = newcomer.call(AGENSH_IMAGE_SERVICE="127.0.0.1:1/agensh/none:1")
    assert "\nnote: task.reference: it is a script: workers can read it" in done.stdout


def test_an_image_that_cannot_be_built(tmp_path: Path) -> None:
    arguments = {"BASE": "127.0.0.1:1/agensh/none:1"}
    with pytest.raises(AgenshError, match=r"^image agensh-test/never:1 cannot be built: ") as raised:
        build_image("agensh-test/never:1", "service.Dockerfile", arguments=arguments, context=tmp_path)
    assert "\n" not in str(raised.value)


def test_data_of_an_earlier_run(newcomer: Newcomer) -> None:
    client = docker.from_env()
    volume = client.volumes.create(f"{PROJECT}_mysql", labels={"com.docker.compose.project": PROJECT})
    try:
        assert newcomer.refused(code=2).startswith(f"team.name: '{PROJECT}' is taken")
        assert newcomer.runs() == []
    finally:
        volume.remove()
        client.close()
