"""Brings a project up in order, and takes it down again. Every step looks first, so `up` may be called at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from docker.errors import APIError, NotFound

from adapters.container_runtime import connect, remove_containers
from agensh.errors import AgenshError, UsageError
from agensh.identity import write_private
from agensh.launch.compose.engine import Compose, check_ports, choose_subnets, compose_command
from agensh.launch.compose.forge_admin import ensure_forge_admin
from agensh.launch.compose.images import ensure_images
from agensh.launch.compose.live import KEPT_LOGS, LiveRun, ProjectState, containers_of, find_service, read_compose_env
from agensh.launch.compose.preflight import check_disk, loopback_ports
from agensh.launch.compose.project import ENDED, ENDING, write_compose_env
from agensh.launch.compose.provider import judge
from agensh.launch.compose.reboot import BOOT_FILE
from agensh.rundir import RunDir

SERVICES = ("mysql", "postgres", "gitea", "mattermost", "board")
PASSED_ON = ("AGENSH_IMAGE_", "AGENSH_MEMORY_", "AGENSH_PORT_", "AGENSH_DOCKER_SOCKET")
"""Prefixes of the variables of the environment that go into the stack."""
HEALTHY = 300.0  # seconds until all services answer; Gitea and Mattermost make their databases at first
_LOOK = 0.5  # seconds between two looks
_CHOICES = 5  # of networks, where others start a project at the same time
_TAKEN = "Pool overlaps with other one"
"""What the engine says of a subnet that another network has."""
Say = Callable[[str], None]


class Stage(StrEnum):
    """How far a run has got."""

    RUNNING = "running"
    ENDING = "ending"
    """Its time is over; the node host collects, grades and writes the report."""
    ENDED = "ended"


class Stack:
    """One project on this box."""

    def __init__(self, run: RunDir, say: Say, environment: Mapping[str, str]) -> None:
        """AgenshError when the run was not made for containers, or the engine does not answer."""
        self.run = run
        self.say = say
        # What the project was started with counts on: another shell, or the boot of the box, has not all of it.
        self.environment = {**read_compose_env(run), **environment}
        self.info = run.info()
        self.containers = containers_of(run, self.info)
        self.project = self.containers.project
        self.client = connect()

    @property
    def gateway(self) -> bool:
        """Whether the run has a gateway."""
        return self.info.spec.gateway is not None

    def variables(self) -> dict[str, str]:
        """Return what compose.yaml reads for this run, networks included."""
        passed = {name: value for name, value in self.environment.items() if name.startswith(PASSED_ON)}
        subnets = choose_subnets(self.client, self.project, self.environment.get("AGENSH_NETWORKS", ""))
        return {
            **passed,
            "AGENSH_RUN": str(self.run.path),
            "AGENSH_IMAGE_SERVICE": self.containers.grader_image,
            "AGENSH_SUBNET_SERVICES": subnets.services,
            "AGENSH_SUBNET_TEAM": subnets.team,
            "AGENSH_SUBNET_EGRESS": subnets.egress,
        }

    def ports(self) -> dict[str, int]:
        """Return the loopback ports of this project by their variables."""
        return loopback_ports(self.environment)

    def compose(self) -> Compose:
        """Return Compose with this run's variables written down."""
        return Compose(self.project, write_compose_env(self.run, self.variables()), tuple(compose_command()))

    @property
    def stage(self) -> Stage:
        """How far the run has got."""
        if (self.run.path / ENDED).exists():
            return Stage.ENDED
        return Stage.ENDING if (self.run.path / ENDING).exists() else Stage.RUNNING

    def up(self) -> Stage:
        """Bring everything up: images, services, accounts, the node host. AgenshError says what to do.

        The stage tells whether its time turned out to be over, or whether a reboot has ended it.
        """
        self._check_place()
        if self._live().unpause():
            self.say("the project was paused; it goes on")
        stage = self.stage
        if stage is Stage.ENDED or (stage is Stage.ENDING and self._live().state() is ProjectState.RUNNING):
            return stage
        self._check()
        was_running = self._running("node") is not None
        ensure_images(self.client, self.containers, self.info.spec, self.environment, self.say)
        services = [*SERVICES, *(["gateway"] if self.gateway else [])]
        self.say(f"starting {', '.join(services)}")
        compose = self._start(services)
        self.wait_healthy(services)
        if self.stage is Stage.RUNNING:
            self._ask_provider()
            self.provision(compose)
        self.say("starting the node host")
        compose.call("up", "-d", "--no-deps", "node", profiles=["node"])
        self.wait_healthy(["node"])
        stage = self.stage
        if stage is Stage.RUNNING and was_running and (parked := self._live().unpark()):
            self.say(f"{', '.join(parked)}: parked until now, goes on")
        return stage

    def _start(self, services: list[str]) -> Compose:
        """Start services, with other networks when another project has just taken those that were chosen."""
        for _ in range(_CHOICES - 1):
            compose = self.compose()
            try:
                compose.call("up", "-d", *services, profiles=["gateway"])
            except AgenshError as error:
                if _TAKEN not in str(error):
                    raise
            else:
                return compose
        compose = self.compose()
        compose.call("up", "-d", *services, profiles=["gateway"])
        return compose

    def _ask_provider(self) -> None:
        """Say when the provider cannot be reached; AgenshError when it refuses the credential."""
        section = self.info.spec.gateway
        if section is not None and (known := judge(section, self._live().ask_provider(), "agensh up")):
            self.say(known)

    def provision(self, compose: Compose | None = None) -> None:
        """Make what the run needs on its services; nothing that is there is made twice."""
        self._check_place()
        compose = compose or self.compose()
        url = f"http://127.0.0.1:{self.ports()['AGENSH_PORT_GITEA']}"
        ensure_forge_admin(self._container("gitea"), url, self.run, self.say)
        self._remove_one_offs()
        self.say("provisioning: accounts, tokens, repository, channel")
        compose.call("run", "--rm", "-T", "--no-deps", "provision", profiles=["provision"], show=True)

    def down(self) -> None:
        """Stop everything and keep the record and the data; the run goes on with the next `up`.

        AgenshError when the record could not be collected; all is stopped all the same.
        """
        compose = self.compose()
        failed = self._put_away(compose)
        # Before the networks: one that a container is on cannot be removed.
        remove_containers(self.client, self.project)
        compose.call("down", "--remove-orphans", "-t", "30", profiles=["gateway", "provision", "node"])
        if failed:
            raise AgenshError(
                f"all is stopped, but the record could not be collected ({failed}); the data is kept, and `agensh up` "
                "and `agensh down` collect it."
            )

    def _put_away(self, compose: Compose) -> str:
        """End the node host in order, collect the record, keep the logs; return why it could not be collected."""
        self._live().unpause()  # what is frozen cannot end in order
        failed = ""
        if self._running("node") is not None:
            self.say("stopping the node host; it puts its workers away")
            compose.call("stop", "-t", "60", "node", profiles=["node"])
        # Before the node host's first start there is no record, and that of a run that has ended is whole.
        begun = (self.run.path / BOOT_FILE).exists() and self.stage is not Stage.ENDED
        if begun and self._running("gitea") is not None and self._running("board") is not None:
            self.say("collecting the record")
            try:
                self.one_off(compose, "collect")
            except AgenshError as error:
                failed = str(error)
        self.save_logs()
        return failed

    def save_logs(self) -> None:
        """Keep the logs of the containers that are ours in the run folder: they go with their containers."""
        for service in KEPT_LOGS:
            container = self._live().service(service)
            if container is not None:
                write_private(self.run.logs / f"{service}.jsonl", container.logs().decode(errors="replace"))

    def one_off(self, compose: Compose, name: str) -> None:
        """Run one of the short services (`provision`, `collect`) against the running stack."""
        self._remove_one_offs()
        arguments = ["python", "-m", "agensh.launch.service", name, str(self.run.path), "0"]
        compose.call("run", "--rm", "-T", "--no-deps", "provision", *arguments, profiles=["provision"], show=True)

    def _remove_one_offs(self) -> None:
        """Remove the short services that a command has left behind which was killed; two at once would collide."""
        labels = [f"com.docker.compose.project={self.project}", "com.docker.compose.oneoff=True"]
        for container in self.client.containers.list(all=True, filters={"label": labels}):
            with suppress(NotFound):
                container.remove(force=True)

    def clean(self) -> None:
        """Remove all containers, networks and volumes of the project; the run folder stays, with the record."""
        compose = self.compose()
        if failed := self._put_away(compose):
            self.say(f"the record is not complete: {failed}")
        node = self._find("node")
        if node is not None:
            with suppress(NotFound):
                node.remove(force=True)  # before its workers, which it would start again
        remove_containers(self.client, self.project)
        compose.call("down", "-v", "--remove-orphans", "-t", "10", profiles=["gateway", "provision", "node"])
        # Compose takes a network whose last container is still leaving it for one in use, and leaves it.
        for network in self.client.networks.list(filters={"label": f"com.docker.compose.project={self.project}"}):
            with suppress(NotFound):
                network.remove()
        # Its data is gone: the next `up` starts a run of its own.
        (self.run.path / ENDED).touch()
        (self.run.path / ENDING).unlink(missing_ok=True)

    def _check_place(self) -> None:
        """UsageError when the run folder was moved: run.json and the containers name its files where they were."""
        goal = self.info.spec.task.goal
        here = self.run.path / "task" / "goal" / goal.name
        if not (goal.exists() and here.exists() and goal.samefile(here)):
            raise UsageError(
                f"run: {str(self.run.path)!r} cannot go on here: it was made at {str(goal.parents[2])!r}; move it back."
            )

    def _check(self) -> None:
        compose_command()
        check_disk(self.run.path.parent)
        running = {name for name in SERVICES if self._running(name) is not None}
        if not running:
            check_ports(self.ports())

    def wait_healthy(self, services: list[str]) -> None:
        """Wait until services are healthy; AgenshError names the one that is not, with its last line."""
        until = time.monotonic() + HEALTHY
        waiting = set(services)
        restarts: dict[str, int] = {}  # when first looked at: a container counts those of all its days
        while waiting:
            for service in sorted(waiting):
                state, ended = self._health(service, restarts)
                # A node host whose run is over answers nobody, and ends.
                if state == "healthy" or (service == "node" and self.stage is not Stage.RUNNING):
                    waiting.discard(service)
                elif ended or time.monotonic() > until:
                    raise AgenshError(
                        f"{service}: {'it ended' if ended else f'not healthy after {HEALTHY:g} s'}: "
                        f"{self._last_line(service)} (more: docker logs {self._name(service)})"
                    )
            if waiting:
                time.sleep(_LOOK)

    def _health(self, service: str, restarts: dict[str, int]) -> tuple[str, bool]:
        container = self._find(service)
        if container is None:
            return "missing", True
        state = container.attrs["State"]
        ended = state["Status"] in {"exited", "dead"} and not state.get("Restarting")
        # A service that is restarted again and again never gets healthy; three times are no accident.
        count = int(container.attrs.get("RestartCount", 0))
        ended = ended or count - restarts.setdefault(service, count) >= 3
        return state.get("Health", {}).get("Status", "none"), ended

    def _last_line(self, service: str) -> str:
        container = self._find(service)
        if container is None:
            return "there is no container of it"
        try:
            lines = container.logs(tail=5).decode(errors="replace").strip().splitlines()
        except APIError as error:
            return str(error)
        return lines[-1][:300] if lines else "it said nothing"

    def _find(self, service: str) -> Any:
        return find_service(self.client, self.project, service)

    def _live(self) -> LiveRun:
        return LiveRun(self.run, self.client)

    def _running(self, service: str) -> Any:
        container = self._find(service)
        return container if container is not None and container.status == "running" else None

    def _container(self, service: str) -> Any:
        container = self._find(service)
        if container is None:
            raise AgenshError(f"{service}: there is no container of it in project {self.project}; start it: agensh up")
        return container

    def _name(self, service: str) -> str:
        container = self._find(service)
        return str(container.name) if container is not None else service
