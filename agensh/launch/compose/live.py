"""The containers of a run that is there: what they do, a question to the node host, a pause, a shell in one of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound

from adapters.container_runtime import LABEL, WORKER_USER, connect
from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.project import ENDED, ENDING, ENV_FILE
from agensh.rundir import ContainerInfo, RunDir, RunInfo

SERVICES = ("mysql", "postgres", "gitea", "mattermost", "board", "gateway", "node")
_RUN_LABEL = "agensh.run"
KEPT_LOGS = ("node", "board", "gateway")
"""Services of Agensh's own: they mount the folder of their run, and their logs are kept in it by `down`."""
_LOOK = 1.0  # seconds between two looks whether a run has ended
_GONE = 5  # looks in a row that find no node host: between its death and its next start it is gone for a moment
_FAILED = 3  # times that the node host may fail in the end of a run, which are no accident


class ProjectState(StrEnum):
    """What the node host of a project does."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class LiveRun:
    """The containers of one run, as the engine has them."""

    def __init__(self, run: RunDir, client: docker.DockerClient | None = None) -> None:
        """UsageError for a run without containers; HarnessUnavailable when the engine does not answer."""
        self.run = run
        self.info = run.info()
        self.containers = containers_of(run, self.info)
        self.client = client or connect()

    @property
    def project(self) -> str:
        """Of Compose."""
        return self.containers.project

    def service(self, name: str) -> Any:
        """Return the container of a service of this run, or None; one of another run of the project does not count."""
        found = find_service(self.client, self.project, name)
        return found if found is not None and self._is_mine(found) else None

    def state(self) -> ProjectState:
        """Say what the node host does."""
        node = self.service("node")
        status = "" if node is None else node.status
        return {"running": ProjectState.RUNNING, "paused": ProjectState.PAUSED}.get(status, ProjectState.DOWN)

    def exists(self) -> bool:
        """Say whether the node host's container is there, running or not: `down` removes it, a reboot does not."""
        return self.service("node") is not None

    def owner(self) -> Path | None:
        """Return the folder of the run that the project's containers belong to, when that is another one than this."""
        for name in KEPT_LOGS:
            found = find_service(self.client, self.project, name)
            for folder in _own_folders(found) if found is not None else ():
                if Path(folder, "run.json").is_file() and Path(folder) != self.run.path:
                    return Path(folder)
        return None

    def wait_for_end(self) -> None:
        """Return when the run is over and its report is written; AgenshError when it stops before that."""
        gone = 0
        first: int | None = None
        while not (self.run.path / ENDED).exists():
            node = self.service("node")
            gone = gone + 1 if node is None or node.status in {"exited", "dead"} else 0
            if gone > _GONE and not (self.run.path / ENDED).exists():
                raise AgenshError(
                    f"{self.run.run_id} has stopped before its end; go on with: agensh resume {self.run.run_id}"
                )
            if node is not None and (self.run.path / ENDING).exists():
                count = int(node.attrs.get("RestartCount", 0))
                first = count if first is None else first
                if count - first >= _FAILED:
                    raise AgenshError(f"the end of {self.run.run_id} fails; `agensh logs node` says why.")
            time.sleep(_LOOK)

    def worker(self, name: str) -> Any:
        """Return the running container of a worker; AgenshError says why there is none."""
        try:
            container = self.client.containers.get(f"{self.project}_{name}")
        except NotFound:
            container = None
        if container is None or container.labels.get(_RUN_LABEL) != self.run.run_id:
            raise AgenshError(f"{name} has no container: it has not started yet, or {self.run.run_id} is down.")
        if container.status == "paused":
            raise AgenshError(f"{name} is paused; `agensh resume {self.run.run_id}` lets it go on.")
        if container.status != "running":
            raise AgenshError(f"The container of {name} is {container.status}; the node host starts it again.")
        return container

    def pause(self) -> int:
        """Freeze the node host, then the workers; return how many workers. The services stay.

        AgenshError when there is nothing to freeze.
        """
        if (self.run.path / ENDED).exists():
            raise AgenshError(f"{self.run.run_id} is over; `agensh report {self.run.run_id}` shows what it did.")
        state = self.state()
        if state is not ProjectState.RUNNING:
            word = "paused already" if state is ProjectState.PAUSED else "not running"
            raise AgenshError(f"{self.run.run_id} is {word}; `agensh resume {self.run.run_id}` goes on with it.")
        # The node host first: it must not take a worker that does not move for one that has failed.
        self.service("node").pause()
        return sum(_each("pause", self._workers("running")))

    def unpause(self) -> int:
        """Let everything of the project that is frozen go on, the node host last; return how many containers."""
        frozen = _each("unpause", self._workers("paused"))
        node = find_service(self.client, self.project, "node")
        return sum(frozen) + sum(_each("unpause", [node] if node is not None and node.status == "paused" else []))

    def ask(self) -> list[dict[str, Any]]:
        """Return what the node host says of itself; AgenshError when it does not answer."""
        answers: list[dict[str, Any]] = json.loads(self._in("node", "status"))
        return answers

    def ask_provider(self) -> dict[str, Any]:
        """Return what the provider says to the gateway; AgenshError when the gateway does not answer."""
        answer: dict[str, Any] = json.loads(self._in("gateway", "provider"))
        return answer

    def unpark(self) -> list[str]:
        """Let parked workers go on and return who was parked; AgenshError when the node host does not answer."""
        workers: list[str] = json.loads(self._in("node", "unpark"))
        return workers

    def collect(self) -> None:
        """Copy the record of the running services into the run folder."""
        self._in("node", "collect")

    def ports(self, defaults: dict[str, int]) -> dict[str, int]:
        """Return the loopback ports of the project: those of its last start over `defaults`."""
        kept = read_compose_env(self.run)
        return {name: int(kept.get(name) or default) for name, default in defaults.items()}

    def service_log(self, name: str, *, lines: int, follow: bool) -> Iterator[bytes]:
        """Yield the log of a service, by pieces; AgenshError when it has no container."""
        container = self.service(name)
        if container is None:
            raise AgenshError(f"{name} has no container: {self.run.run_id} is down.")
        tail: int | str = lines or "all"
        if follow:
            yield from container.logs(stream=True, follow=True, tail=tail)
        else:
            yield container.logs(tail=tail)

    def _in(self, service: str, name: str) -> str:
        """Run one of the short services in the container of a service and return what it says."""
        container = self.service(service)
        if container is None or container.status != "running":
            raise AgenshError(f"{self.run.run_id} is not running.")
        command = ["python", "-m", "agensh.launch.service", name, str(self.run.path), "0"]
        try:
            done = container.exec_run(command, demux=True)
        except APIError as error:
            raise AgenshError(f"{service} cannot be asked: {error.explanation or error}") from error
        out, err = (part.decode(errors="replace").strip() if part else "" for part in done.output)
        if done.exit_code:
            said = (err.splitlines() or [f"{service} does not answer"])[-1]
            raise AgenshError(said.removeprefix(f"agensh {name}: ")[:300])
        return str(out)

    def _workers(self, status: str) -> list[Any]:
        filters: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={self.project}", "status": status}
        found: list[Any] = self.client.containers.list(all=True, filters=filters, ignore_removed=True)
        return found

    def _is_mine(self, container: Any) -> bool:
        folders = _own_folders(container)
        return not folders or str(self.run.path) in folders


def _own_folders(container: Any) -> list[str]:
    """Return what a container mounts of its run; the databases' containers mount nothing of it."""
    # The run folder has the same path in the containers as on the box.
    return [mount["Source"] for mount in container.attrs["Mounts"] if mount["Source"] == mount["Destination"]]


def _each(call: str, containers: Sequence[Any]) -> list[int]:
    """Call a method of each container; one that has gone meanwhile does not count."""
    done = []
    for container in containers:
        try:
            getattr(container, call)()
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:  # it is as it should be already, or has ended
                raise AgenshError(f"{container.name}: {call} failed: {error.explanation or error}") from error
            continue
        done.append(1)
    return done


def find_service(client: docker.DockerClient, project: str, service: str) -> Any:
    """Return the container of a service of a Compose project, or None."""
    labels = [f"com.docker.compose.project={project}", f"com.docker.compose.service={service}"]
    labels.append("com.docker.compose.oneoff=False")
    found = client.containers.list(all=True, filters={"label": labels}, ignore_removed=True)
    return found[0] if found else None


def has_remains(client: docker.DockerClient, project: str) -> bool:
    """Say whether the engine has a container, a network or a volume of a project."""
    filters: dict[str, str | list[str] | bool] = {"label": f"com.docker.compose.project={project}"}
    return bool(
        client.containers.list(all=True, filters=filters, ignore_removed=True)
        or client.containers.list(all=True, filters={"label": f"{LABEL}={project}"}, ignore_removed=True)
        or client.networks.list(filters=filters)
        or client.volumes.list(filters=filters)
    )


def refresh(run: RunDir, info: RunInfo) -> str:
    """Collect the record of a run in containers that has not ended; return why that was not possible, else nothing."""
    if info.containers is None or (run.path / ENDED).exists():
        return ""
    if (run.path / ENDING).exists():
        return f"{run.run_id} is being collected and graded"
    try:
        live = LiveRun(run)
        state = live.state()
        if state is not ProjectState.RUNNING:
            return f"{run.run_id} is {state}"
        live.collect()
    except AgenshError as error:
        return str(error).rstrip(".")
    return ""


def containers_of(run: RunDir, info: RunInfo) -> ContainerInfo:
    """Return how the containers of a run are named; UsageError when it has none."""
    if info.containers is None:
        raise UsageError(f"run: {run.run_id} does not run in containers; `agensh up` makes such a run.")
    return info.containers


def read_compose_env(run: RunDir) -> dict[str, str]:
    """Return the variables with which the project of a run was started last; empty before its first start."""
    try:
        lines = (run.path / ENV_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {name: value for name, mark, value in (line.partition("=") for line in lines) if mark}


def shell_command(container: str, home: str, folder: str, *, terminal: bool) -> list[str]:
    """Return the command of a shell in a worker's container as the worker, bash where there is one."""
    shell = "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
    options = ["-i", *(["-t"] if terminal else []), "-u", WORKER_USER, "-w", folder, "-e", f"HOME={home}"]
    options += ["-e", f"TERM={os.environ.get('TERM', 'dumb')}"] if terminal else []
    return ["docker", "exec", *options, container, "sh", "-c", shell]
