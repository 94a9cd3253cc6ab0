"""A node host with CLIs in memory: starts, deliveries, failures, restarts, the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from agensh.clock import SystemClock
from agensh.rundir import RunDir
from router.node import NodeHost
from tests.support.router_stage import (
    MemoryBoard,
    NoRuntime,
    Stage,
    StageBackends,
    new_run,
)

ME, PEER = "demo-worker1", "demo-worker2"


def host_of(run: RunDir, stage: Stage, backends: StageBackends, **arguments: Any) -> NodeHost:
    info = run.info()
    return NodeHost(
        run,
        info,
        run.secrets(),
        adapter_factory=stage.adapter,
        runtime=NoRuntime(),
        clock=SystemClock(),
        workers=info.spec.worker_names,
        backends=backends,
        **{"grace": 2.0, **arguments},
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
    assert began["demo-worker1"] < 0.3 <= began["demo-worker2"] < began["demo-worker3"]
    assert began["demo-worker3"] >= 0.6
    prompt = stage.prompts[ME][0]
    assert prompt.startswith(f"# You are `{ME}`")
    assert "source=control kind=start" in prompt
    assert rows(run, "select state from runs")[0]["state"] == "running"
