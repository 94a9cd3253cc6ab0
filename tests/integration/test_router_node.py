"""A node host with CLIs in memory: starts, deliveries, failures, restarts, the deadline."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from adapters.base import Outcome, Text, TurnEnd, TurnItem
from agensh.clock import SystemClock
from agensh.entries import EntryType
from agensh.errors import AgenshError, ServiceError
from agensh.rundir import RunDir
from router.node import NodeHost
from tests.support.router_stage import (
    MemoryBoard,
    NoRuntime,
    Stage,
    StageAdapter,
    StageBackends,
    comment,
    direct_message,
    new_run,
    say_done,
)

ME, PEER = "demo-worker1", "demo-worker2"


def host_of(run: RunDir, stage: Stage, backends: StageBackends, **arguments: Any) -> NodeHost:
    info = run.info()
    return NodeHost(
        run,
        info,
        run.secrets(),
        runtime=NoRuntime(),
        clock=SystemClock(),
        workers=info.spec.worker_names,
        backends=backends,
        **{"adapter_factory": stage.adapter, "grace": 2.0, **arguments},
    )


@asynccontextmanager
async def running(host: NodeHost) -> AsyncIterator[NodeHost]:
    task = asyncio.create_task(host.run())
    try:
        yield host
    finally:
        host.stop()
        await task


def rows(run: RunDir, query: str) -> list[dict[str, Any]]:
    engine = create_engine(f"sqlite:///{run.path / 'runtime.sqlite3'}")
    try:
        with engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(text(query))]
    finally:
        engine.dispose()


def count(stage: Stage, worker: str) -> int:
    return len(stage.prompts.get(worker, []))


def state(host: NodeHost, worker: str = ME) -> str:
    return str(host.routers[worker].state) if worker in host.routers else ""


async def waiting(host: NodeHost, worker: str = ME) -> bool:
    return (await host.routers[worker].queue.depth()).waiting > 0


async def until_async(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def fetch_status(run: RunDir) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=run.info().urls.node, trust_env=False) as client:
        response = await client.get("/status", headers={"Authorization": "Bearer node-token"})
    value: dict[str, Any] = response.json()
    return value


@pytest.fixture
def board() -> MemoryBoard:
    return MemoryBoard(SystemClock())


async def test_workers_start_one_after_the_other_and_get_the_worker_prompt(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=3, stagger="300ms", budget="1h", wind_down="1m", last_call="1s")
    stage = Stage()
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: len(stage.prompts) == 3)
    turns = rows(run, "select worker, started_at from turns where id in (select min(id) from turns group by worker)")
    t0 = rows(run, "select t0 from runs")[0]["t0"]
    began = {row["worker"]: row["started_at"] - t0 for row in turns}
    assert began["demo-worker1"] < began["demo-worker2"] < began["demo-worker3"]
    assert began["demo-worker2"] >= 0.3
    assert began["demo-worker3"] >= 0.6
    prompt = stage.prompts[ME][0]
    assert prompt.startswith(f"# You are `{ME}`")
    assert "source=control kind=start" in prompt
    assert rows(run, "select state from runs")[0]["state"] == "running"


async def test_a_message_reaches_a_busy_worker_with_its_next_call_and_is_not_repeated(
    tmp_path: Path, board: MemoryBoard
) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    go = asyncio.Event()
    shown: list[str] = []

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        router = host.routers[ME]
        if len(stage.prompts[ME]) == 1:
            yield Text("working")
            await go.wait()
            for _ in range(3):
                router.desk.acknowledge()
                notice = router.desk.collect(2000)
                shown.extend(notice.refs if notice else [])
        router.dispatcher.published = True
        yield TurnEnd(Outcome.COMPLETED)

    stage, backends = Stage(turn), StageBackends(board)
    host = host_of(run, stage, backends)
    async with running(host):
        await stage.until(lambda: len(stage.prompts.get(ME, [])) == 1)
        desk = host.routers[ME].desk
        board.write(PEER, EntryType.FAIL, "tabs break it")
        await stage.until(lambda: desk.oldest_unseen() is not None)
        earlier = SystemClock().time() - 5
        backends.ears[ME].heard.put_nowait(([direct_message(1, "stop that", at=earlier)], {"mattermost": "1"}))
        await stage.until(lambda: desk.oldest_unseen() == earlier)
        go.set()
        await stage.until(lambda: len(stage.prompts[ME]) >= 2)  # the single worker goes on
        await stage.until(lambda: host.routers[ME].state == "idle" or len(stage.prompts[ME]) > 2)
    assert sorted(shown) == ["e2", "g1"]
    assert "stop that" not in stage.prompts[ME][1]
    assert "tabs break it" not in stage.prompts[ME][1]
    (message,) = rows(run, "select * from events where kind = 'direct_message'")
    assert (message["state"], message["via"], message["turn_id"]) == ("sent", "notice", 1)
    notices = rows(run, "select ref, kind, via, posted_at, shown_at, acked_at from notices order by ref")
    assert [(row["ref"], row["kind"], row["via"]) for row in notices] == [
        ("e2", "direct_message", "mcp"),
        ("g1", "entry", "mcp"),
    ]
    assert all(row["posted_at"] <= row["shown_at"] <= row["acked_at"] for row in notices)


async def test_the_next_turn_shows_events_and_unread_entries(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=2, stagger="0s", budget="1h", wind_down="1m", last_call="1s", idle="1h")
    stage, backends = Stage(), StageBackends(board)
    host = host_of(run, stage, backends)
    async with running(host):
        await stage.until(lambda: all(count(stage, name) >= 2 for name in (ME, PEER)))  # start, reminder
        board.write(ME, EntryType.FACT, "mine")
        board.write(PEER, EntryType.CLAIM, "cut -c")
        await stage.until(lambda: host.routers[ME].desk.oldest_unseen() is not None)
        backends.ears[ME].heard.put_nowait(([comment(1, "a"), comment(2, "b")], {"gitea": "1"}))
        await stage.until(lambda: count(stage, ME) >= 3)
    prompt = stage.prompts[ME][2]
    assert "# You are" not in prompt
    assert "count=2 summary: a | b" in prompt
    assert f"[{PEER}, CLAIM, 0.0 min ago] cut -c" in prompt
    assert "mine" not in prompt
    assert "source=control kind=publish_reminder" in stage.prompts[ME][1]
    turns = rows(run, f"select * from turns where worker = '{ME}' order by id")
    assert {(turn["outcome"], turn["text"]) for turn in turns[:3]} == {("completed", "done")}
    assert turns[2]["prompt"] == prompt
    assert turns[2]["events"] == 2
    assert turns[2]["entries"] == 1


async def test_failed_turns_get_a_fresh_session_then_the_worker_is_parked_and_the_team_goes_on(
    tmp_path: Path, board: MemoryBoard
) -> None:
    run = new_run(
        tmp_path / "r1", workers=2, stagger="0s", budget="100h", wind_down="1m", last_call="1s", idle="90h", speed=100
    )

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        if adapter.launch.worker == ME:
            yield TurnEnd(Outcome.NO_WORK, "It said it was done and did nothing.")
        else:
            yield TurnEnd(Outcome.COMPLETED)

    stage, backends = Stage(turn), StageBackends(board)
    host = host_of(run, stage, backends)
    # Waits are bounded below by half a second, so the test takes a few seconds.
    async with running(host):
        await stage.until(lambda: state(host) == "parked", 60)
        assert "did nothing" in host.routers[ME].reason
        backends.ears[PEER].heard.put_nowait(([comment(1, "go on")], {}))
        await stage.until(lambda: any("go on" in prompt for prompt in stage.prompts[PEER]))
        backends.ears[ME].heard.put_nowait(([comment(2, "kept")], {}))
        await until_async(lambda: waiting(host))
    sessions = [session for worker, session in stage.starts if worker == ME]
    assert sessions == [None] * 4
    assert all(prompt.startswith("# You are") for prompt in stage.prompts[ME])
    events = {row["kind"]: row for row in rows(run, f"select * from events where worker = '{ME}'")}
    assert events["start"]["attempts"] >= 3
    assert events["start"]["reason"] == "It said it was done and did nothing."
    assert events["comment"]["state"] == "queued"
    (session,) = rows(run, f"select * from sessions where worker = '{ME}'")
    assert session["parked_reason"] == host.routers[ME].reason
    assert session["number"] == 4


async def test_a_rate_limit_waits_and_costs_no_attempt(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        if count(stage, ME) == 1:
            yield TurnEnd(Outcome.RATE_LIMITED, "429", retry_after=0.4)
        else:
            yield TurnEnd(Outcome.COMPLETED)

    stage = Stage(turn)
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 3)
    first, second = rows(run, "select * from turns order by id limit 2")
    assert second["started_at"] - first["ended_at"] >= 0.4
    start = rows(run, "select * from events where kind = 'start'")[0]
    assert (start["state"], start["attempts"], start["handed_out"]) == ("sent", 0, 2)
    assert stage.starts == [(ME, None)]


async def test_a_worker_without_credentials_is_parked_at_once_and_keeps_its_events(
    tmp_path: Path, board: MemoryBoard
) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield TurnEnd(Outcome.AUTH, "The key was refused.")

    stage = Stage(turn)
    host = host_of(run, stage, StageBackends(board))
    async with running(host):
        await stage.until(lambda: state(host) == "parked")
        status = await fetch_status(run)
    assert status["workers"][0]["state"] == "parked"
    assert status["workers"][0]["reason"] == "auth: The key was refused."
    assert status["workers"][0]["queued"] == 1
    assert count(stage, ME) == 1
    # A person sees to it and starts the host again: the same session goes on, and the event is delivered.
    stage.turn = say_done
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 2)
    assert stage.starts[1] == (ME, f"{ME}-s1")


async def test_a_parked_worker_goes_on_when_it_is_told_to(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=2, stagger="0s", budget="1h", wind_down="1m", last_call="1s", idle="1h")
    refused = True

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        if adapter.launch.worker == ME and refused:
            yield TurnEnd(Outcome.AUTH, "The key was refused.")
        else:
            yield TurnEnd(Outcome.COMPLETED)

    async def unpark() -> Any:
        async with httpx.AsyncClient(base_url=run.info().urls.node, trust_env=False) as client:
            return (await client.post("/unpark", headers={"Authorization": "Bearer node-token"})).json()

    stage = Stage(turn)
    host = host_of(run, stage, StageBackends(board))
    async with running(host):
        await stage.until(lambda: state(host) == "parked")
        assert await unpark() == {"workers": [ME]}
        await stage.until(lambda: count(stage, ME) == 2 and state(host) == "parked")
        refused = False
        assert await unpark() == {"workers": [ME]}
        await stage.until(lambda: count(stage, ME) >= 3 and state(host) == "idle")  # a reminder may follow
        assert host.routers[ME].reason == ""
        assert await unpark() == {"workers": []}
    assert [session for worker, session in stage.starts if worker == ME] == [None, f"{ME}-s1", f"{ME}-s1"]
    assert [row["parked_reason"] for row in rows(run, "select parked_reason from sessions")] == ["", ""]
    (start,) = rows(run, f"select * from events where worker = '{ME}' and kind = 'start'")
    assert (start["state"], start["attempts"]) == ("sent", 0)


async def test_a_restart_resumes_the_session_and_the_clock(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    blocked = asyncio.Event()

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("working")
        blocked.set()
        await adapter.interrupted.wait()
        yield TurnEnd(Outcome.INTERRUPTED, "stopped")

    stage = Stage(turn)
    async with running(host_of(run, stage, StageBackends(board))):
        await blocked.wait()
    (before,) = rows(run, "select * from runs")
    assert before["state"] == "running"
    (interrupted,) = rows(run, "select * from turns")
    assert interrupted["outcome"] == "interrupted"
    assert rows(run, "select state from events") == [{"state": "queued"}]
    stage.turn = say_done
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 2)
    assert stage.starts == [(ME, None), (ME, f"{ME}-s1")]
    prompt = stage.prompts[ME][1]
    assert "kind=resumed" in prompt
    assert "kind=start" in prompt
    assert "# You are" not in prompt
    assert rows(run, "select * from runs")[0]["t0"] == before["t0"]


async def test_a_lost_session_is_replaced_and_gets_the_worker_prompt_again(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    stage = Stage()
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 1)
    stage.known_sessions.clear()
    seen = count(stage, ME)
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) > seen)
    assert [session for _, session in stage.starts] == [None, f"{ME}-s1", None]
    assert stage.prompts[ME][seen].startswith("# You are")
    assert "Your former session is gone" in stage.prompts[ME][seen]


async def test_the_deadline_interrupts_turns_and_finishes_the_run(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=2, stagger="0s", budget="3s", wind_down="2s", last_call="1s", idle="1h")

    async def turn(adapter: StageAdapter, prompt: str) -> AsyncIterator[TurnItem]:
        yield Text("working")
        await adapter.interrupted.wait()
        if adapter.launch.worker == ME:
            yield TurnEnd(Outcome.INTERRUPTED, "stopped")
        await asyncio.sleep(3600)

    stage = Stage(turn)
    host = host_of(run, stage, StageBackends(board), grace=0.5)
    await asyncio.wait_for(host.run(), 30)
    (row,) = rows(run, "select * from runs")
    assert row["state"] == "finished"
    assert 3.0 <= row["stopped_at"] - row["t0"] < 10.0
    assert set(stage.stops) == {ME, PEER}
    assert rows(run, "select * from events where state = 'in_flight'") == []
    assert rows(run, "select * from turns where ended_at is null") == []
    kinds = {row["kind"] for row in rows(run, f"select kind from events where worker = '{ME}'")}
    assert {"start", "wind_down", "last_call"} <= kinds
    # Started again after its end, it stays finished and starts nobody.
    starts = len(stage.starts)
    await asyncio.wait_for(host_of(run, stage, StageBackends(board)).run(), 30)
    assert len(stage.starts) == starts


async def test_one_worker_that_breaks_takes_down_no_other(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=2, stagger="0s", budget="1h", wind_down="1m", last_call="1s", idle="1h")

    class Broken(StageBackends):
        def listeners(self, worker: str, *arguments: Any) -> Any:
            if worker == ME:
                raise RuntimeError("no listeners for you")
            return super().listeners(worker, *arguments)

    stage = Stage()
    host = host_of(run, stage, Broken(board))
    async with running(host):
        await stage.until(lambda: count(stage, PEER) >= 1)
        await stage.until(lambda: state(host) == "parked")
        assert host.routers[ME].reason == "RuntimeError: no listeners for you"


async def test_a_second_host_is_refused_by_name_while_the_first_lives(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    stage = Stage()
    async with running(host_of(run, stage, StageBackends(board))):
        await stage.until(lambda: count(stage, ME) >= 1)
        with pytest.raises(AgenshError, match=rf"another node host runs this run \(pid {os.getpid()} on "):
            await host_of(run, Stage(), StageBackends(board)).run()


async def test_a_port_in_use_is_named(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    port = int(run.info().urls.node.rpartition(":")[2])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(AgenshError, match=f"{port} on 127.0.0.1 is already in use"):
            await host_of(run, Stage(), StageBackends(board)).run()


async def test_status_and_health(tmp_path: Path, board: MemoryBoard) -> None:
    run = new_run(tmp_path / "r1", workers=2, stagger="1h", budget="9h", wind_down="1m", last_call="1s", idle="1h")
    stage, backends = Stage(), StageBackends(board)
    host = host_of(run, stage, backends)
    async with running(host), httpx.AsyncClient(base_url=run.info().urls.node, trust_env=False) as client:
        await stage.until(lambda: count(stage, ME) >= 2 and host.routers[ME].state == "idle")
        backends.ears[PEER].heard.put_nowait(([direct_message(1, "early", author=ME, at=5.0)], {}))
        await until_async(lambda: waiting(host, PEER))
        assert (await client.get("/healthz")).json() == {"status": "ok", "run": "r1"}
        assert (await client.get("/status")).status_code == 401
        assert (await client.get("/status", headers={"Authorization": "Bearer mcp-demo-worker1"})).status_code == 403
        assert (await client.post(f"/mcp/{ME}", json={})).status_code == 401
        mine, other = (await fetch_status(run))["workers"]
    assert (mine["worker"], mine["state"], mine["turns"], mine["queued"]) == (ME, "idle", 2, 0)
    assert mine["session"] == f"{ME}-s1"
    assert (other["state"], other["queued"], other["oldest_unseen_at"]) == ("waiting", 1, 5.0)
    assert backends.closed


async def test_a_chat_that_is_not_there_yet_is_waited_for_and_told_once(
    tmp_path: Path, board: MemoryBoard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.node.CHAT_WAIT", 0.02)
    caplog.set_level("INFO")
    missing = [ServiceError("The chat", 0, "ConnectError", retryable=True) for _ in range(5)]

    class Late(StageBackends):
        async def channel_id(self) -> str:
            if missing:
                raise missing.pop()
            return await super().channel_id()

    run, stage = new_run(tmp_path / "r1", workers=1), Stage()
    async with running(host_of(run, stage, Late(board))):
        await stage.until(lambda: count(stage, ME) == 1)
    said = [record.getMessage() for record in caplog.records if "chat" in record.getMessage()]
    assert said == ["waiting for the chat", "the chat answers"]
