"""CLI processes in containers: one container a worker, each CLI an exec in it with its standard input and output here.

The container outlives its CLI: it is made when the worker's first CLI starts, and started again when it has died. It
holds the worker's own folders and the reference program, and nothing else of the run. What a CLI starts stays in the
container's process namespace, so that ending a CLI ends all of the worker's processes but the container's own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import LogConfig, Mount, Ulimit

from adapters.base import HarnessUnavailable
from adapters.runtime import LINE_LIMIT

UID = 10_000
"""Who a worker is in its container."""
REFERENCE = "/opt/pbench/executable"
"""Where the reference program stands in a container: execute-only for the worker."""
LABEL = "agensh.project"
WORKER_LABEL = "agensh.worker"
_STDOUT = 1
_HEADER = struct.Struct(">BxxxL")
"""Of a frame on an exec's stream: which output, and how many bytes (Docker Engine API, "Attach to a container")."""
WORKER_USER = f"{UID}:{UID}"
# The container's own process waits as somebody else: a signal to all of the worker's processes does not reach it.
_KEEPER = f"{UID + 1}:{UID + 1}"
_IDLE = ["sleep", "infinity"]
_DNS = ["timeout:2", "attempts:2"]
"""No name outside resolves here, and older engines do not say so: without this each look-up takes 20 s."""
_POLL = 0.1  # seconds between two looks whether the worker's processes are gone
_CHUNK, _CHUNKS = 1 << 16, 64  # bytes of a part of the output, and parts that may wait to be read
_API_TIMEOUT = 60  # seconds for one answer of the engine
_ENGINE_FAILURES = (DockerException, OSError)
"""What a call of the engine may fail with: its refusal, or no answer, which comes as an OSError of requests."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """How a project's worker containers are made."""

    project: str
    run_id: str
    image: str
    network: str
    memory: int = 0
    """Bytes; 0 for no limit."""
    cpus: float = 0.0
    """Cores; 0 for no limit."""
    pids: int = 4096
    reference: Path | None = None
    """The reference program on the host, mounted read-only at `REFERENCE`."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """More read-only files or folders: path in the container → path on the host."""

    def name_of(self, worker: str) -> str:
        """Return the name of a worker's container."""
        return f"{self.project}_{worker}"


class ContainerRuntime:
    """Starts CLIs in the containers of one project."""

    def __init__(self, plan: ContainerPlan, client: docker.DockerClient | None = None) -> None:
        self._plan = plan
        self._client = client or connect()
        self._locks: dict[str, asyncio.Lock] = {}

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> ContainerProcess:
        """Start `command` in the container of the worker that `env` names; HarnessUnavailable when that cannot be."""
        worker = env["AGENSH_WORKER"]
        lock = self._locks.setdefault(worker, asyncio.Lock())
        async with lock:
            try:
                container = await asyncio.to_thread(self._ready, worker, cwd.parent)
                process = ContainerProcess(self._client, container, log)
                await _wholly(process, process.start(command, env, cwd))
            except _ENGINE_FAILURES as error:
                raise HarnessUnavailable(f"The container of {worker} cannot be used: {_reason(error)}") from error
        return process

    def _ready(self, worker: str, folder: Path) -> str:
        """Return the id of the worker's running container with no process of an earlier CLI in it."""
        name = self._plan.name_of(worker)
        try:
            container = self._client.containers.get(name)
        except NotFound:
            container = self._create(name, worker, folder)
        if container.labels.get("agensh.run") != self._plan.run_id:
            # Left by an earlier run of the project: its folders are another run's.
            container.remove(force=True)
            container = self._create(name, worker, folder)
        if container.status == "running":
            _signal_all(container, "KILL")
            container.reload()
        # Now no process of the worker runs that could move a link into the way.
        _give_to_worker(folder)
        if container.status != "running":
            container.start()  # after its making, a death of its own, a kill, or a reboot
        return str(container.id)

    def _create(self, name: str, worker: str, folder: Path) -> Any:
        plan = self._plan
        mounts = [Mount(str(folder), str(folder), type="bind")]
        if plan.reference is not None:
            mounts.append(Mount(REFERENCE, str(plan.reference), type="bind", read_only=True))
        mounts += [Mount(inside, str(path), type="bind", read_only=True) for inside, path in plan.files.items()]
        try:
            return self._client.containers.create(
                plan.image,
                _IDLE,
                name=name,
                hostname=worker,
                init=True,
                user=_KEEPER,
                network=plan.network,
                dns_opt=_DNS,
                mounts=mounts,
                tmpfs={"/tmp": "rw,nosuid,nodev,size=2g", "/run": "rw,nosuid,nodev,size=16m"},
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                mem_limit=plan.memory or None,
                memswap_limit=plan.memory or None,
                nano_cpus=int(plan.cpus * 1e9) or None,
                pids_limit=plan.pids,
                ulimits=[Ulimit(name="core", soft=0, hard=0)],
                labels={LABEL: plan.project, WORKER_LABEL: worker, "agensh.run": plan.run_id},
                log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m", "max-file": "1"}),
            )
        except ImageNotFound as error:
            raise HarnessUnavailable(
                f"There is no image {plan.image!r} for workers; `agensh up` builds it, `agensh up --dry-run` names it."
            ) from error


class ContainerProcess:
    """A CLI in a worker's container, as `Process` of adapters/base.py."""

    def __init__(self, client: docker.DockerClient, container: str, log: Path) -> None:
        self._client = client
        self._container = container
        self._log = log
        self._exec = ""
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS)
        self._rest = bytearray()
        self._at_end = False
        self._writer: asyncio.StreamWriter | None = None
        self._pump: asyncio.Task[None] | None = None
        self._stopping = asyncio.Lock()

    @property
    def pid(self) -> int:
        """0: the process lives in another process namespace, and no number of it means anything here."""
        return 0

    async def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Start the exec and attach to it."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            # Unbuffered: a line of a CLI that has just crashed is in the file.
            file = stack.enter_context(self._log.open("ab", buffering=0))
            stream = await asyncio.to_thread(self._attach, command, env, cwd)
            stream.setblocking(False)
            source, self._writer = await asyncio.open_connection(sock=stream)
            self._pump = asyncio.create_task(self._read_all(source, file))
            kept = stack.pop_all()
            self._pump.add_done_callback(lambda _done: kept.close())

    def _attach(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> socket.socket:
        api = self._client.api
        made = api.exec_create(
            self._container,
            list(command),
            stdin=True,
            stdout=True,
            stderr=True,
            environment=dict(env),
            workdir=str(cwd),
            user=WORKER_USER,
        )
        self._exec = str(made["Id"])
        # Over a Unix socket the answer is a SocketIO, which closes its connection when it is collected.
        answer: Any = api.exec_start(self._exec, socket=True)
        raw: socket.socket = answer._sock.dup()
        return raw

    async def _read_all(self, source: asyncio.StreamReader, file: BinaryIO) -> None:
        try:
            await self._read_frames(source, file)
            await self._chunks.put(b"")
        except asyncio.CancelledError:
            # Nobody may be reading any more: what was not read gives way to the end.
            while self._chunks.full():
                self._chunks.get_nowait()
            self._chunks.put_nowait(b"")
            raise

    async def _read_frames(self, source: asyncio.StreamReader, file: BinaryIO) -> None:
        """Take the exec's stream apart: standard output for `read_line`, standard error to the log."""
        try:
            while True:
                kind, size = _HEADER.unpack(await source.readexactly(_HEADER.size))
                while size:
                    part = await source.readexactly(min(size, _CHUNK))
                    size -= len(part)
                    if kind == _STDOUT:
                        await self._chunks.put(part)
                    else:
                        with suppress(OSError):  # a full disk costs the log, not the CLI
                            file.write(part)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the exec has ended, or its container

    async def write_line(self, line: str) -> None:
        """See Process.write_line."""
        writer = self._writer
        if writer is None or writer.is_closing() or (self._pump is not None and self._pump.done()):
            raise BrokenPipeError("the CLI has ended")
        writer.write(line.encode() + b"\n")
        try:
            await writer.drain()
        except ConnectionError as error:
            raise BrokenPipeError("the CLI reads no more") from error

    async def read_line(self) -> str | None:
        """See Process.read_line."""
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0 and not self._at_end:
            searched = len(self._rest)
            if searched > LINE_LIMIT:
                raise ValueError(f"the CLI wrote a line of more than {LINE_LIMIT} bytes")
            chunk = await self._chunks.get()
            self._at_end = not chunk
            self._rest += chunk
        if end < 0 and not self._rest:
            return None
        cut = len(self._rest) if end < 0 else end + 1
        line = bytes(self._rest[:cut])
        del self._rest[:cut]
        return line.decode("utf-8", "replace").rstrip("\r\n")

    async def wait(self) -> int:
        """See Process.wait; -9 when the whole container is gone, or the engine."""
        assert self._pump is not None
        await asyncio.wait({self._pump})
        while True:
            try:
                found = await asyncio.to_thread(self._client.api.exec_inspect, self._exec)
            except _ENGINE_FAILURES:
                return -9
            if not found["Running"]:
                code = found["ExitCode"]
                return -9 if code is None else int(code)
            await asyncio.sleep(_POLL)

    async def stop(self, grace: float = 5.0) -> None:
        """See Process.stop. All of the worker's processes in its container end, whatever their group."""
        async with self._stopping:
            if self._writer is not None and not self._writer.is_closing():
                with suppress(OSError):
                    self._writer.write_eof()
            if await self._signal("TERM"):
                try:
                    async with asyncio.timeout(grace):
                        await self._all_gone()
                except TimeoutError:
                    await self._signal("KILL")
            if self._writer is not None:
                self._writer.close()
            if self._pump is not None:
                self._pump.cancel()
                await asyncio.wait({self._pump})

    async def _all_gone(self) -> None:
        # The engine tells nobody of the end of what an exec has started, so it is asked.
        alive = True
        while alive:
            await asyncio.sleep(_POLL)
            alive = await self._signal("0")

    async def _signal(self, name: str) -> bool:
        """Send a signal to all of the worker's processes; say whether there was any."""

        def send() -> bool:
            return _signal_all(self._client.containers.get(self._container), name)

        try:
            return await asyncio.to_thread(send)
        except NotFound:
            return False  # no container, no process
        except _ENGINE_FAILURES as error:
            # The next CLI of the worker ends what is left of this one before it starts.
            log.warning("worker's processes cannot be told to end", extra={"error": _reason(error)})
            return False


async def _wholly(process: ContainerProcess, start: Coroutine[Any, Any, None]) -> None:
    """Start a CLI; one whose start is cancelled is started all the same, for the engine was asked, and then ended."""
    starting = asyncio.create_task(start)
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(*_ENGINE_FAILURES):
            await starting
        await process.stop()
        raise


def connect() -> docker.DockerClient:
    """Return a client of this machine's Docker engine; HarnessUnavailable says how to get one."""
    try:
        client = docker.from_env(timeout=_API_TIMEOUT)
        client.ping()
    except DockerException as error:
        raise HarnessUnavailable(
            f"The Docker engine does not answer ({_reason(error)}); start it (systemctl start docker), and let this "
            "user use it (group docker)."
        ) from error
    return client


def remove_containers(client: docker.DockerClient, project: str) -> int:
    """Remove every worker container of a project; return how many there were."""
    found = client.containers.list(all=True, filters={"label": f"{LABEL}={project}"}, ignore_removed=True)
    for container in found:
        with suppress(NotFound):
            container.remove(force=True, v=True)
    return len(found)


def _signal_all(container: Any, name: str) -> bool:
    """Send a signal to all of the worker's processes in a running container (blocking); say whether there was any.

    Who has as many processes as it may have leaves no room for the one that sends the signal: then the container ends.
    """
    code = container.exec_run(["sh", "-c", f"kill -{name} -1"], user=WORKER_USER).exit_code
    if code in (0, 1):
        return bool(code == 0)
    log.warning("worker takes no signal, its container is ended", extra={"container": container.name, "code": code})
    with suppress(APIError):  # it has ended by itself
        container.kill()
    container.wait(timeout=_API_TIMEOUT)
    return False


def _give_to_worker(folder: Path) -> None:
    """Make the worker the owner of what this process, as root, has put into its folders."""
    if os.geteuid() != 0:
        return
    for inside, folders, files in os.walk(folder):
        for path in (Path(inside), *(Path(inside, name) for name in (*folders, *files))):
            if path.lstat().st_uid == 0:
                os.chown(path, UID, UID, follow_symlinks=False)


def _reason(error: Exception) -> str:
    root: BaseException = error
    while (inner := root.__cause__ or root.__context__) is not None:
        root = inner
    if isinstance(error, APIError) and error.explanation:
        text = error.explanation
    elif isinstance(root, OSError) and root.strerror:
        text = root.strerror  # without the four libraries that have wrapped it
    else:
        text = str(error)
    return str(text).strip().rstrip(".")[:300]
