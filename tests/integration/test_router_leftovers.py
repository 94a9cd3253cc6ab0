"""A node host that is killed with SIGKILL, what it leaves running, and its successor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from router.leftovers import end_leftovers, started
from router.lock import node_lock
from tests.integration.test_router_node import count, host_of, rows, running
from tests.support.router_stage import MemoryBoard, Stage, StageBackends, new_run, until

ROOT = Path(__file__).parents[2]
ME = "demo-worker1"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for child in made:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)


def sleeper(made: list[subprocess.Popen[bytes]], **env: str) -> subprocess.Popen[bytes]:
    # A shell with a child of its own: the whole group has to go.
    made.append(
        subprocess.Popen(["sh", "-c", "sleep 600 & wait"], env=env | {"PATH": "/usr/bin:/bin"}, start_new_session=True)
    )
    return made[-1]


def alive(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is None


def test_only_what_is_ours_is_ended(children: list[subprocess.Popen[bytes]]) -> None:
    ours = sleeper(children, AGENSH_RUN="r1", AGENSH_WORKER=ME)
    recorded = sleeper(children)
    others = [
        sleeper(children),
        sleeper(children, AGENSH_RUN="r1", AGENSH_WORKER="demo-worker10"),
        sleeper(children, AGENSH_RUN="r2", AGENSH_WORKER=ME),
    ]
    reused = sleeper(children)
    start = started(recorded.pid)
    assert start is not None
    end_leftovers("r1", [ME], [(recorded.pid, start), (reused.pid, "another boot/1"), (2**22 - 1, start)])
    # A shell whose child is killed just before it may end by itself.
    assert {ours.wait(10), recorded.wait(10)} <= {-signal.SIGKILL, 0}
    assert all(alive(child) for child in [*others, reused])
    assert started(2**22 - 1) is None


def test_the_start_of_a_process_names_it(children: list[subprocess.Popen[bytes]]) -> None:
    first, second = sleeper(children), sleeper(children)
    assert started(first.pid) == started(first.pid)
    assert started(first.pid) != started(os.getpid())
    os.killpg(second.pid, signal.SIGKILL)
    os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
    assert started(second.pid) is None  # a zombie runs no more


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from router.lock import node_lock
with node_lock(Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Exception, match=f"another node host runs this run .pid {holder.pid} on "),
            node_lock(tmp_path),
        ):
            pass
        holder.kill()
        holder.wait(10)
    with node_lock(tmp_path):
        pass


async def test_a_terminated_host_ends_its_clis_and_can_be_resumed(tmp_path: Path) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.router_host", str(run.path), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    try:
        cli = int((await asyncio.wait_for(host.stdout.readline(), 60)).split()[1])
        host.terminate()
        assert await asyncio.wait_for(host.wait(), 30) == 0
    finally:
        with suppress(ProcessLookupError):
            host.kill()
        await host.wait()
    assert started(cli) is None
    assert rows(run, "select state from runs") == [{"state": "running"}]
    last = rows(run, "select outcome, reason from turns order by id desc limit 1")
    assert last == [{"outcome": "interrupted", "reason": "The turn was interrupted."}]
    comment = rows(run, "select state, attempts from events where kind = 'comment'")
    assert comment == [{"state": "queued", "attempts": 0}]
    assert rows(run, "select session_id from sessions") == [{"session_id": "kept-session"}]


async def test_after_a_kill_the_next_host_ends_the_old_cli_resumes_and_loses_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.router_host", str(run.path), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    try:
        line = await asyncio.wait_for(host.stdout.readline(), 60)
        assert line.startswith(b"turn ")
        cli = int(line.split()[1])
        assert started(cli) is not None
    finally:
        host.kill()
        await host.wait()
    (open_turn,) = rows(run, "select id from turns where ended_at is null")
    assert {row["state"] for row in rows(run, "select state from events where kind = 'comment'")} == {"in_flight"}
    assert started(cli) is not None  # it outlived its host
    stage = Stage()
    stage.known_sessions.add("kept-session")
    board = MemoryBoard(SystemClock())
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 1, 30)
        await until(lambda: started(cli) is None)
    assert stage.starts[0] == (ME, "kept-session")
    prompt = stage.prompts[ME][0]
    assert "said before the kill" in prompt
    assert "kind=resumed" in prompt
    (closed,) = rows(run, f"select * from turns where id = {open_turn['id']}")
    assert (closed["outcome"], closed["reason"]) == ("crashed", "The node host ended during the turn.")
    comment = rows(run, "select * from events where kind = 'comment'")
    assert [(row["state"], row["attempts"], row["handed_out"]) for row in comment] == [("sent", 0, 2)]
    assert rows(run, "select count(*) as n from runs") == [{"n": 1}]
