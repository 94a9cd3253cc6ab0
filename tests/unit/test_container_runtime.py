"""Processes in containers, over a stand-in for the engine: what happens when it, the CLI or the disk misbehaves."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
import requests

from adapters.base import HarnessUnavailable
from adapters.container_runtime import ContainerPlan, ContainerProcess, ContainerRuntime

PLAN = ContainerPlan("project", "run", "image", "network")
ENV = {"AGENSH_WORKER": "t-worker1"}


class Engine:
    """One container, and a socket in place of each exec's stream."""

    def __init__(self) -> None:
        self.containers = self
        self.api = self
        self.labels = {"agensh.run": "run"}
        self.id = self.name = "container"
        self.status = "running"
        self.kill_code = 1
        self.calls: list[str] = []
        self.calls_before = 0
        """Those before the newest exec was started."""
        self.fails: Exception | None = None
        self.running = True
        self.far: socket.socket | None = None
        self.made: dict[str, Any] = {}
        self.sockets: list[socket.socket] = []
        self.starting, self.may_start = threading.Event(), threading.Event()
        self.may_start.set()

    def get(self, _name: str) -> Engine:
        if self.fails is not None:
            raise self.fails
        return self

    def exec_run(self, command: list[str], user: str) -> Any:
        self.calls.append(f"{command[-1]} as {user}")
        return SimpleNamespace(exit_code=self.kill_code)

    def exec_create(self, *_given: object, **_options: object) -> dict[str, str]:
        return {"Id": "exec"}

    def exec_start(self, _exec: str, *, socket: bool) -> Any:
        assert socket
        self.starting.set()
        assert self.may_start.wait(60)
        self.calls_before = len(self.calls)
        near, self.far = new_pair()
        self.sockets += [near, self.far]
        return SimpleNamespace(_sock=near)

    def exec_inspect(self, _exec: str) -> dict[str, object]:
        if self.fails is not None:
            raise self.fails
        return {"Running": self.running, "ExitCode": None if self.running else 3}

    def create(self, image: str, command: list[str], **options: Any) -> Engine:
        self.calls.append(f"container of {image} made")
        self.made = {"command": command, **options}
        self.fails, self.status = None, "created"
        return self

    def kill(self) -> None:
        self.calls.append("container killed")
        self.status = "exited"

    def wait(self, timeout: float) -> None:
        assert timeout > 0

    def start(self) -> None:
        self.calls.append("container started")
        self.status = "running"

    def reload(self) -> None:
        pass


new_pair = socket.socketpair


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    for each in engine.sockets:
        each.close()


@pytest.fixture
async def spawn(engine: Engine, tmp_path: Path) -> Callable[[], Any]:
    runtime = ContainerRuntime(PLAN, engine)  # type: ignore[arg-type]
    (tmp_path / "work").mkdir()

    async def spawn() -> ContainerProcess:
        return await runtime.spawn(["cli"], env=ENV, cwd=tmp_path / "work", log=tmp_path / "logs" / "cli.log")

    return spawn


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", kind, len(data)) + data


async def say(engine: Engine, data: bytes) -> None:
    assert engine.far is not None
    engine.far.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(engine.far, data)


async def test_output_is_read_by_lines_and_errors_are_logged(engine, spawn, tmp_path):
    process = await spawn()
    await say(engine, frame(1, b"one\ntw") + frame(2, b"an error\n") + frame(1, b"o\n"))
    assert [await process.read_line(), await process.read_line()] == ["one", "two"]
    assert engine.far is not None
    engine.far.close()
    engine.running = False
    assert await process.read_line() is None
    assert await process.wait() == 3
    assert (tmp_path / "logs" / "cli.log").read_bytes() == b"an error\n"
    await process.stop()


async def test_a_cli_that_floods_while_nobody_reads_can_be_stopped(engine, spawn):
    process = await spawn()
    chunk = b"x" * 65_535 + b"\n"
    flood = asyncio.create_task(say(engine, frame(1, chunk) * 200))
    while not process._chunks.full():  # noqa: ASYNC110 (the pump tells nobody)
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await process.stop(grace=0.1)
        while await process.read_line() is not None:
            pass
    flood.cancel()
    with pytest.raises((asyncio.CancelledError, ConnectionError)):
        await flood


async def test_a_disk_that_is_full_costs_the_log_and_not_the_cli(engine, spawn, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "cli.log").symlink_to("/dev/full")
    process = await spawn()
    await say(engine, frame(2, b"an error\n") + frame(1, b"goes on\n"))
    async with asyncio.timeout(20):
        assert await process.read_line() == "goes on"
    await process.stop()


@pytest.mark.parametrize("error", [requests.exceptions.ReadTimeout("late"), docker.errors.DockerException("no")])
async def test_an_engine_that_does_not_answer_is_a_harness_that_cannot_run(engine, spawn, error):
    engine.fails = error
    with pytest.raises(HarnessUnavailable, match="t-worker1 cannot be used"):
        await spawn()
    engine.fails = None
    process = await spawn()
    engine.fails = error
    async with asyncio.timeout(20):
        await process.stop()
        assert await process.wait() == -9


async def test_a_log_that_cannot_be_opened_is_a_harness_that_cannot_run(spawn, tmp_path):
    (tmp_path / "logs").write_text("not a folder")
    with pytest.raises(HarnessUnavailable, match="File exists"):
        await spawn()


async def test_a_worker_that_leaves_no_room_for_a_signal_loses_its_container(engine, spawn):
    engine.kill_code = 126  # what the engine says when the worker has all the processes it may have
    process = await spawn()
    assert engine.calls == ["kill -KILL -1 as 10000:10000", "container killed", "container started"]
    engine.calls.clear()
    await process.stop()
    assert engine.calls == ["kill -TERM -1 as 10000:10000", "container killed"]


async def test_a_container_reaps_what_its_worker_leaves_and_holds_nothing_else_of_the_box(engine, spawn, tmp_path):
    engine.fails = docker.errors.NotFound("no such container")
    process = await spawn()
    await process.stop()
    made = engine.made
    # Children of a CLI that has ended are the init's, which waits for them; PID 1 of ours would have to.
    assert (made["init"], made["command"]) == (True, ["sleep", "infinity"])
    assert [mount["Source"] for mount in made["mounts"]] == [str(tmp_path)]
    assert made["log_config"].config == {"max-size": "1m", "max-file": "1"}
    # Nothing that a worker kills is outside of it, and its own first process is somebody else's.
    assert not {"pid_mode", "ipc_mode", "network_mode", "privileged", "ports", "volumes"} & set(made)
    assert made["user"] != "10000:10000"
    assert (made["cap_drop"], made["pids_limit"]) == (["ALL"], PLAN.pids)


async def test_a_start_that_is_cancelled_leaves_no_cli(engine, spawn):
    engine.may_start.clear()
    starting = asyncio.create_task(spawn())
    await asyncio.to_thread(engine.starting.wait, 60)
    starting.cancel()
    await asyncio.sleep(0)  # the engine is at it and cannot be called back
    engine.may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert engine.calls[engine.calls_before :] == ["kill -TERM -1 as 10000:10000"]
    assert engine.far is not None
    engine.far.settimeout(60)
    assert await asyncio.to_thread(engine.far.recv, 1) == b"", "its connection is closed"
