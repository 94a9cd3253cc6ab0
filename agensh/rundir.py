"""The folder of one run: where everything of it lives, and the two files every process of the run reads.

`run.json` holds no secret and is what `status`, `report` and `resume` read. `secrets.json` (mode 600) holds the
credentials of the services and of the workers; it is read by backend processes only, never by a worker.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agensh.clock import utc
from agensh.errors import AgenshError, UsageError
from agensh.identity import parse_worker_name, sync_folder, write_private, write_private_json
from agensh.spec import TeamSpec
from agensh.urls import sqlite_url


class ServiceUrls(BaseModel):
    """Where the services of a run answer (base URLs without a trailing slash)."""

    model_config = ConfigDict(frozen=True)

    forge: str
    chat: str
    board: str
    node: str
    gateway: str = ""
    """Empty: the run has no gateway."""
    model: str = ""
    """The scripted model behind the gateway; empty: a provider's, or none."""


class NodePlace(BaseModel):
    """One node host of a run: where it answers, and which share of the workers it runs."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Of its process, its log and its lock."""
    url: str
    first: int
    """Index of its first worker in the spec's order."""
    count: int
    """How many workers it runs."""


class ContainerInfo(BaseModel):
    """How the containers of a run are named; there is one where the workers run in containers."""

    model_config = ConfigDict(frozen=True)

    project: str
    """Of Docker Compose; every container, network and volume of the run carries it."""
    image: str
    """Of the workers."""
    grader_image: str
    """In which the grader builds and runs what the team made."""
    reference: str = ""
    """Where the reference program stands in a worker's container."""

    @property
    def network(self) -> str:
        """The network of the workers."""
        return f"{self.project}_team"


class RunInfo(BaseModel):
    """What `run.json` holds."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    created_at: float
    spec: TeamSpec
    urls: ServiceUrls
    board: str = Field(description="Id of the board: the team's name.")
    owner: str = Field(description="Owner of the team's repository on the forge.")
    repository: str = Field(description="Name of the team's repository.")
    channel: str = Field(description="Name of the team's task channel.")
    chat_team: str = Field(description="Name of the team on the chat.")
    playbook: Path | None = Field(None, description="What the scripted model plays, in a run that has one.")
    containers: ContainerInfo | None = Field(None, description="Set when the workers run in containers.")
    baseline: bool = Field(False, description="One worker alone, with none of the services but a gateway.")
    nodes: tuple[NodePlace, ...] = Field((), description="The node hosts; empty: one host, at `urls.node`, runs all.")

    @property
    def reference(self) -> str:
        """Where a worker finds the reference program; empty without one."""
        if self.spec.task.reference is None:
            return ""
        return self.containers.reference if self.containers is not None else str(self.spec.task.reference)

    @property
    def places(self) -> tuple[NodePlace, ...]:
        """The node hosts of the run, at least one."""
        return self.nodes or (NodePlace(name="node", url=self.urls.node, first=0, count=self.spec.team.workers),)

    def place(self, name: str) -> NodePlace:
        """Return the node host of that name; UsageError lists those there are."""
        for place in self.places:
            if place.name == name:
                return place
        raise UsageError(f"node: {name!r} is none of this run's: {', '.join(place.name for place in self.places)}.")

    def workers_of(self, place: NodePlace) -> list[str]:
        """Return the full handles of the workers that a node host runs."""
        return self.spec.worker_names[place.first : place.first + place.count]

    def node_url(self, worker: str) -> str:
        """Return where the node host of a worker answers."""
        index = parse_worker_name(worker)[1] - 1
        return next(place.url for place in self.places if place.first <= index < place.first + place.count)


class AdminSecrets(BaseModel):
    """Credentials of backend processes."""

    name: str
    password: str
    token: str = ""
    """A token of the same account, once provisioning has minted it."""


class WorkerSecrets(BaseModel):
    """What belongs to one worker; nothing else of the secrets ever reaches its process."""

    forge_password: str
    """For the session login that the push channel needs; used by the router, not handed to the worker."""
    forge_token: str
    chat_token: str
    chat_user_id: str
    board_token: str
    mcp_token: str
    gateway_key: str = ""
    """Its key to the gateway; empty in a run without one."""


class RunSecrets(BaseModel):
    """What `secrets.json` holds."""

    forge_admin: AdminSecrets
    chat_admin: AdminSecrets
    board_admin: str
    """Admin token of the board service."""
    node_admin: str = ""
    """Token of the node host's own status routes."""
    gateway_admin: str = ""
    """Admin token of the gateway; empty in a run without one. The provider's credential is not among the secrets."""
    board_db: str = ""
    """Database URL of the board, with its password; empty: SQLite in the run folder."""
    runtime_db: str = ""
    """Database URL of the routers, which all node hosts share; empty: SQLite in the run folder."""
    gateway_db: str = ""
    """Database URL of the gateway; empty: SQLite in the run folder."""
    workers: dict[str, WorkerSecrets] = Field(default_factory=dict)


class _Databases(BaseModel):
    """What the secrets say about databases."""

    board_db: str = ""
    runtime_db: str = ""
    gateway_db: str = ""


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of a run folder, and reading and writing its two files."""

    path: Path

    @property
    def run_id(self) -> str:
        """The folder's name is the run's id."""
        return self.path.name

    @property
    def run_file(self) -> Path:
        """Facts of the run, no secret."""
        return self.path / "run.json"

    @property
    def secrets_file(self) -> Path:
        """Credentials, mode 600."""
        return self.path / "secrets.json"

    @property
    def board_url(self) -> str:
        """Database of the board service: the one the secrets name, else SQLite in this folder."""
        return self._named().board_db or sqlite_url(self.path / "board.sqlite3")

    @property
    def runtime_url(self) -> str:
        """Database of the routers (queue, turns, tool calls, notices, record): as for the board."""
        return self._named().runtime_db or sqlite_url(self.path / "runtime.sqlite3")

    @property
    def gateway_url(self) -> str:
        """Database of the gateway (keys, requests with their tokens): as for the board."""
        return self._named().gateway_db or sqlite_url(self.path / "gateway.sqlite3")

    @property
    def forge(self) -> Path:
        """Data of the embedded forge."""
        return self.path / "forge"

    @property
    def chat(self) -> Path:
        """Data of the embedded chat."""
        return self.path / "chat"

    @property
    def workspace(self) -> Path:
        """The repository of a baseline, a bare one."""
        return self.path / "workspace.git"

    @property
    def model(self) -> Path:
        """What the scripted model remembers of each worker."""
        return self.path / "model"

    @property
    def logs(self) -> Path:
        """One JSON-lines file a process."""
        return self.path / "logs"

    @property
    def private(self) -> Path:
        """What workers must not see: the answered cases."""
        return self.path / "private"

    def worker(self, name: str) -> Path:
        """Folder of one worker: `home/`, `work/` (its clone), `tmp/`."""
        return self.path / "workers" / name

    def info(self) -> RunInfo:
        """Read `run.json`; UsageError when the folder is no run."""
        try:
            return RunInfo.model_validate_json(self.run_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"run: {str(self.path)!r} is not a run folder (it has no run.json).") from None
        except (ValidationError, json.JSONDecodeError) as error:
            raise AgenshError(f"{self.run_file} cannot be read as a run: {error}") from error

    def write_info(self, info: RunInfo) -> None:
        """Write `run.json`, whole or not at all."""
        write_private(self.run_file, info.model_dump_json(indent=2) + "\n")
        self.run_file.chmod(0o644)

    def secrets(self) -> RunSecrets:
        """Read the credentials."""
        try:
            return RunSecrets.model_validate_json(self.secrets_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AgenshError(f"{self.secrets_file} is missing; the run cannot go on without it.") from None

    def _named(self) -> _Databases:
        try:
            return _Databases.model_validate_json(self.secrets_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return _Databases()

    def write_secrets(self, value: RunSecrets) -> None:
        """Write the credentials, mode 600."""
        write_private_json(self.secrets_file, value.model_dump())


def new_run_dir(root: Path, team: str, now: float) -> RunDir:
    """Create the folder of a new run: `<root>/<team>-<UTC time>-<random>`, mode 700."""
    while True:
        path = root.absolute() / f"{team}-{utc(now):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        with suppress(FileExistsError):  # another run of this second, and the same random value
            path.mkdir(parents=True, mode=0o700)
            sync_folder(path.parent)
            return RunDir(path)


def find_run(root: Path, name: str | None = None) -> RunDir:
    """Return the run called `name` (a folder, or its name below `root`), or the newest one; UsageError when none."""
    if name is not None:
        for candidate in (Path(name), root / name):
            if (candidate / "run.json").is_file():
                return RunDir(candidate.absolute())
        raise UsageError(f"run: {name!r} is neither a run folder nor the name of one below {root}.")
    found = sorted(root.glob("*/run.json"), key=lambda file: RunDir(file.parent).info().created_at)
    if not found:
        raise UsageError(f"run: there is none below {root} yet; start one with `agensh demo`.")
    return RunDir(found[-1].parent.absolute())
