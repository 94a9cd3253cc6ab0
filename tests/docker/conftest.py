"""What the Docker tests share: the engine, the images, a small task with a reference that can only be run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker
import pytest
from docker.errors import APIError
from docker.models.containers import Container

from agensh.launch.ports import free_ports
from agensh.rundir import RunDir, find_run
from tests.docker.images import BASE, ROOT, build_all, ready_engine

AGENSH = [sys.executable, "-m", "agensh"]
CALL = 400.0  # seconds for one command; a first start makes the databases


@dataclass(frozen=True, slots=True)
class Listing:
    """What the engine has; images apart."""

    containers: frozenset[str]
    networks: frozenset[str]
    volumes: frozenset[str]


@dataclass(slots=True)
class Box:
    """The machine as a user of `agensh up` has it: a folder with a spec, and the engine."""

    folder: Path
    spec: Path
    project: str
    environment: dict[str, str]
    client: docker.DockerClient = field(repr=False)

    def agensh(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of ours in the folder."""
        done = subprocess.run(
            [*AGENSH, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=CALL,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of ours without waiting for it."""
        return subprocess.Popen(
            [*AGENSH, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> RunDir:
        """Return the newest run."""
        return find_run(self.folder / "runs")

    def container(self, name: str) -> Container:
        """Return a worker's container, or that of a service."""
        if name in {"mysql", "postgres", "gitea", "mattermost", "board", "gateway", "node"}:
            labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={name}"]
            return self.client.containers.list(all=True, filters={"label": labels})[0]
        return self.client.containers.get(f"{self.project}_{name}")

    def kill(self, name: str) -> None:
        """Kill a container's process with SIGKILL from outside, as the kernel does; `docker kill` counts as a wish."""
        os.kill(self.container(name).attrs["State"]["Pid"], signal.SIGKILL)

    def in_worker(self, worker: str, script: str, user: str = "10000:10000") -> tuple[int, str]:
        """Run a shell script in a worker's container as the worker; return exit code and output."""
        try:
            done = self.container(worker).exec_run(["sh", "-c", script], user=user)
        except APIError as error:  # it is not running
            return 255, str(error)
        assert isinstance(done.output, bytes)
        return done.exit_code or 0, done.output.decode(errors="replace")

    def listing(self) -> Listing:
        """Return what the engine has."""
        return Listing(
            frozenset(str(each.name) for each in self.client.containers.list(all=True)),
            frozenset(str(each.name) for each in self.client.networks.list()),
            frozenset(str(each.name) for each in self.client.volumes.list()),
        )


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """The images, built when they are missing."""
    ready_engine()
    return build_all()


@pytest.fixture(scope="session")
def reference(images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The textutils as a binary: what cannot be read can still be run."""
    folder = tmp_path_factory.mktemp("reference")
    shutil.copy(Path(__file__).parent / "textutils.c", folder)
    command = ["gcc", "-O2", "-static", "-o", "/w/textutils", "/w/textutils.c"]
    docker.from_env().containers.run(BASE, command, volumes={str(folder): {"bind": "/w", "mode": "rw"}}, remove=True)
    return folder / "textutils"


@pytest.fixture
def box(request: pytest.FixtureRequest, images: dict[str, str], reference: Path, tmp_path: Path) -> Iterator[Box]:
    """A folder with the textutils' spec for a project of its own, cleaned up at the end."""
    yield from make_box(images, reference, tmp_path, f"t{abs(hash(request.node.nodeid)) % 10**6}")


def make_box(images: dict[str, str], reference: Path, folder: Path, project: str) -> Iterator[Box]:
    """Yield a box and clean it up."""
    task = folder / "textutils"
    shutil.copytree(ROOT / "examples/textutils", task)
    shutil.copy(reference, task / "reference" / "program")
    spec = task / "team.toml"
    text = spec.read_text().replace('name = "demo"', f'name = "{project}"')
    spec.write_text(text.replace('"reference/textutils"', '"reference/program"'))
    ports = dict(zip(("GITEA", "MATTERMOST", "BOARD"), free_ports(3), strict=True))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")}
    environment = kept | images | {f"AGENSH_PORT_{name}": str(port) for name, port in ports.items()}
    box = Box(folder, spec, project, environment, docker.from_env())
    before = box.listing()
    try:
        yield box
    finally:
        if list((folder / "runs").glob("*/run.json")):
            box.agensh("clean", check=False)
        after = box.listing()
        box.client.close()
    assert after == before
