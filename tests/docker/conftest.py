"""What the Docker tests share: the engine, the images, a small task with a reference that can only be run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError
from docker.models.containers import Container

from agensh.launch.ports import free_ports
from agensh.rundir import RunDir, find_run
from tests.docker.engine import ready_engine
from tests.docker.images import BASE, DEBIAN, ROOT, build_all, remove_old

AGENSH = [sys.executable, "-m", "agensh"]
CALL = 400.0  # seconds for one command; a first start makes the databases
WAIT = 300.0  # seconds for a condition, on a machine that does other things too
LOOK = 0.2  # seconds between two looks at one
SETTLED = 60.0  # seconds until the engine has put away what others, and builds, have for a moment
TEAM = "dockerteam"
SPEED = "60"  # six hours are six minutes
GATEWAY = '\n[gateway]\nbase_url = "http://127.0.0.1:9/v1"\nauth = "none"\n'
"""Of a team whose workers ask no model: the process is there, with its networks and its routes."""
CASES, FEWER_CASES = "ORDINARY, EDGE = 8, 13", "ORDINARY, EDGE = 2, 2"
"""Hidden cases a tool: what grading does is the same with fewer, and a dozen commits are graded."""
STAGES = {"test_team": 0, "test_team_end": 2}
"""When a file's tests run. The team's run takes minutes by itself: the others run meanwhile."""
FIGURES: list[str] = []
"""What was measured, for the end of the session."""
ALONE = False
"""Whether the engine is the tests' own, so that all that is in it is theirs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the team's end behind all others."""
    here = Path(__file__).parent
    items.sort(key=lambda item: STAGES.get(item.path.stem, 1) if item.path.parent == here else 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured."""
    for figure in FIGURES:
        terminalreporter.write_line(f"measured: {figure}")


def until(condition: Callable[[], bool], what: str, seconds: float = WAIT) -> None:
    """Wait for a condition of another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(LOOK)


@dataclass(frozen=True, slots=True)
class Listing:
    """What the engine has, by kind and name, images apart."""

    names: frozenset[tuple[str, str]]

    @property
    def containers(self) -> set[str]:
        """Names of containers, running or not."""
        return {name for kind, name in self.names if kind == "container"}

    @property
    def networks(self) -> set[str]:
        """Names of networks."""
        return {name for kind, name in self.names if kind == "network"}


@dataclass(slots=True)
class Box:
    """The machine as a user of `agensh up` has it: a folder with a spec, and the engine."""

    folder: Path
    spec: Path
    project: str
    environment: dict[str, str]
    client: docker.DockerClient = field(repr=False)
    before: frozenset[tuple[str, str]] = frozenset()
    """What the engine had before anything was made here."""
    up_seconds: float = 0.0
    """How long the team's `up` took."""
    up_bytes: int = 0
    """What it held at most."""
    up_load: float = 0.0
    """How many processes wanted to run meanwhile, for each core."""

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

    def up(self, *arguments: str) -> None:
        """Call `agensh up` and measure it."""
        began = time.monotonic()
        process = self.start("up", str(self.spec), *arguments)
        assert process.stdout is not None
        with process.stdout:
            said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, said
        self.up_seconds, self.up_bytes = time.monotonic() - began, usage.ru_maxrss * 1024
        self.up_load = os.getloadavg()[0] / (os.cpu_count() or 1)  # of the last minute

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

    def inside(self, name: str, script: str, user: str = "") -> tuple[int, str]:
        """Run a shell script in a container; return exit code and output."""
        try:
            done = self.container(name).exec_run(["sh", "-c", script], user=user)
        except APIError as error:  # it is not running
            return 255, str(error)
        assert isinstance(done.output, bytes)
        return done.exit_code or 0, done.output.decode(errors="replace")

    def in_worker(self, worker: str, script: str) -> tuple[int, str]:
        """Run a shell script in a worker's container as the worker; return exit code and output."""
        return self.inside(worker, script, user="10000:10000")

    def listing(self) -> Listing:
        """Return what the engine has of this project, and what has no owner where nobody else uses the engine."""
        return Listing(frozenset((kind, name) for kind, name, owner in self.everything() if self._counts(name, owner)))

    def everything(self) -> list[tuple[str, str, str]]:
        """Return kind, name and project of what the engine has; the project is empty for what belongs to none."""
        api = self.client.api
        found: list[tuple[str, str, Mapping[str, str] | None]] = [
            *(("container", _first_name(each), each["Labels"]) for each in api.containers(all=True)),
            *(("network", each["Name"], each["Labels"]) for each in api.networks()),
            *(("volume", each["Name"], each["Labels"]) for each in api.volumes()["Volumes"] or []),
        ]
        return [(kind, name, _owner(labels or {})) for kind, name, labels in found]

    def _counts(self, name: str, owner: str) -> bool:
        mine = owner == self.project or name.startswith(f"{self.project}_")
        return mine or (ALONE and not owner)

    def volumes(self) -> set[str]:
        """Return the names of the volumes of this project's containers, those without a label too."""
        names = self.listing().containers
        mounts = (
            mount
            for each in self.client.api.containers(all=True)
            if _first_name(each) in names
            for mount in each["Mounts"]
        )
        return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}

    def leaves_nothing(self, volumes: Set[str] = frozenset(), besides: Set[tuple[str, str]] = frozenset()) -> None:
        """Wait until the engine has nothing that it had not before, but `besides`, and none of `volumes`."""
        end = time.monotonic() + SETTLED
        while (more := self._more(volumes) - besides) and time.monotonic() < end:
            time.sleep(LOOK)
        assert not more

    def _more(self, volumes: Set[str]) -> set[tuple[str, str]]:
        left = {(kind, name) for kind, name, _ in self.everything() if kind == "volume" and name in volumes}
        return left | (self.listing().names - self.before)


def _owner(labels: Mapping[str, str]) -> str:
    return labels.get("com.docker.compose.project") or labels.get("agensh.project") or ""


def _first_name(container: Mapping[str, Any]) -> str:
    names: list[str] = container["Names"] or [container["Id"]]  # it has none for a moment
    return names[0].removeprefix("/")


@pytest.fixture(scope="session", autouse=True)
def engine() -> Iterator[None]:
    """An engine that answers; when the tests have started it they stop it."""
    global ALONE
    started = ready_engine()
    ALONE = started is not None
    yield
    if started is not None and not started.stop():
        FIGURES.append("the Docker engine that was started goes on: containers run in it")


@pytest.fixture(scope="session")
def images(engine: None) -> Iterator[dict[str, str]]:
    """The images, built when they are missing; those of former sources go when they are old."""
    made = build_all()
    yield made
    remove_old({DEBIAN, BASE, *made.values()}, datetime.now(UTC))


@pytest.fixture(scope="session")
def reference(images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The textutils as a binary: what cannot be read can still be run."""
    folder = tmp_path_factory.mktemp("reference")
    shutil.copy(Path(__file__).parent / "textutils.c", folder)
    command = ["gcc", "-O2", "-static", "-o", "/w/textutils", "/w/textutils.c"]
    client = docker.from_env()
    client.containers.run(BASE, command, volumes={str(folder): {"bind": "/w", "mode": "rw"}}, remove=True)
    client.close()
    return folder / "textutils"


@pytest.fixture
def box(request: pytest.FixtureRequest, images: dict[str, str], reference: Path, tmp_path: Path) -> Iterator[Box]:
    """A folder with the textutils' spec for a project of its own, cleaned up at the end."""
    yield from make_box(images, reference, tmp_path, f"t{abs(hash(request.node.nodeid)) % 10**6}")


@pytest.fixture(scope="session")
def team(images: dict[str, str], reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A team of eight, up, with its workers at work."""
    made = make_box(images, reference, tmp_path_factory.mktemp("team"), TEAM)
    box = next(made)
    box.spec.write_text(box.spec.read_text() + GATEWAY)
    try:
        box.up("--speed", SPEED)
        figure = f"{box.up_seconds:.1f} s until services are healthy and 8 workers provisioned"
        FIGURES.append(f"agensh up: {figure} ({box.up_load:.1f} processes wanted each core)")
        until(lambda: len(workers(box)) == 8, "eight workers")
        yield box
    finally:
        made.close()


def workers(box: Box) -> set[str]:
    """Return the names of a project's worker containers."""
    return {name for name in box.listing().containers if name.startswith(f"{box.project}_{box.project}-worker")}


def make_box(images: dict[str, str], reference: Path, folder: Path, project: str) -> Generator[Box]:
    """Yield a box and clean it up."""
    task = folder / "textutils"
    shutil.copytree(ROOT / "examples/textutils", task)
    shutil.copy(reference, task / "reference" / "program")
    spec = task / "team.toml"
    text = spec.read_text().replace('name = "demo"', f'name = "{project}"')
    spec.write_text(text.replace('"reference/textutils"', '"reference/program"'))
    cases = task / "cases.py"
    drawn = cases.read_text()
    assert CASES in drawn
    cases.write_text(drawn.replace(CASES, FEWER_CASES))
    ports = dict(zip(("GITEA", "MATTERMOST", "BOARD"), free_ports(3), strict=True))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")}
    environment = kept | images | {f"AGENSH_PORT_{name}": str(port) for name, port in ports.items()}
    box = Box(folder, spec, project, environment, docker.from_env())
    box.before = box.listing().names
    try:
        yield box
    finally:
        try:
            volumes = box.volumes()
            if list((folder / "runs").glob("*/run.json")):
                box.agensh("clean")
            box.leaves_nothing(volumes)
        finally:
            box.client.close()
