"""Reads a run's record: the collected files and the runtime database, as plain rows.

Nothing here counts or judges; `report.py` does. A run that was never collected has empty lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.db import open_engine
from agensh.entries import Entry
from agensh.gateway.ledger import read_requests
from agensh.rundir import RunDir, RunInfo
from agensh.runs.checkpoints import Checkpoint, load_grades
from agensh.runs.collect import USAGE
from agensh.runs.cost import Cost, CostCounter

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """All that is known of a run."""

    info: RunInfo
    t0: float | None
    """When the first worker was started; None when none was."""
    stopped_at: float | None
    """When the node host ended the run; None while it has not."""
    state: str
    entries: Sequence[Entry] = ()
    posts: Sequence[Row] = ()
    pulls: Sequence[Row] = ()
    main: Sequence[Row] = ()
    stranded: Sequence[Row] = ()
    grades: Sequence[Checkpoint] = ()
    events: Sequence[Row] = ()
    turns: Sequence[Row] = ()
    tool_calls: Sequence[Row] = ()
    notices: Sequence[Row] = ()
    sessions: Sequence[Row] = field(default=())
    cost: Cost | None = None
    """Tokens and money as the gateway metered them; None in a run without a gateway."""


RUNTIME_COPY = "runtime.json"
"""In `record/`: what a runtime database that is not in the run folder held when the record was collected."""


async def load_record(run: RunDir) -> Record:
    """Read the record of a run folder; UsageError when it is none."""
    info = run.info()
    folder = run.path / "record"

    def collected(name: str) -> list[dict[str, Any]]:
        file = folder / f"{name}.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []

    copy = folder / RUNTIME_COPY
    if copy.exists():
        tables: dict[str, list[Row]] = json.loads(copy.read_text(encoding="utf-8"))
    else:
        tables = await read_runtime(run) if (run.path / "runtime.sqlite3").exists() else {}
    runs = tables.pop("runs", [])
    state = runs[0] if runs else {}
    pulls = collected("pulls")
    cost = await _cost(run, info, state.get("t0"), tables.get("turns", []), sum(bool(pull["merged"]) for pull in pulls))
    return Record(
        info=info,
        t0=state.get("t0"),
        stopped_at=state.get("stopped_at"),
        state=str(state.get("state", "new")),
        entries=[Entry.from_json(value) for value in collected("entries")],
        posts=collected("posts"),
        pulls=pulls,
        main=collected("main"),
        stranded=collected("stranded"),
        grades=load_grades(run),
        cost=cost,
        **tables,
    )


async def _cost(run: RunDir, info: RunInfo, t0: float | None, turns: Sequence[Row], merges: int) -> Cost | None:
    """Count the gateway's requests: from its database, or from what was collected of it."""
    section = info.spec.gateway
    if section is None:
        return None
    counter = CostCounter(t0=t0, turns=turns, budget=section.budget_usd, worker_budget=section.worker_budget_usd)
    kept = run.path / "record" / USAGE
    here = (run.path / "gateway.sqlite3").exists()
    if kept.exists() and not here:
        with kept.open(encoding="utf-8") as file:
            for line in file:
                counter.add(json.loads(line))
    # The database of a run in containers cannot be reached from outside; its record is what was collected.
    elif here or not (info.containers is not None or run.gateway_url.startswith("sqlite")):
        async for row in read_requests(run.gateway_url):
            counter.add(row)
    return counter.cost(merges)


async def read_runtime(run: RunDir) -> dict[str, list[Row]]:
    """Read what the node hosts recorded from the run's runtime database."""
    engine = open_engine(run.runtime_url, pool_size=1)
    try:
        async with engine.connect() as connection:
            return {name: await _rows(connection, query) for name, query in _QUERIES.items()}
    finally:
        await engine.dispose()


_QUERIES = {
    "runs": "SELECT t0, state, stopped_at FROM runs",
    "events": "SELECT id, worker, source, kind, state, handed_out, observed_at, delivered_at, via, reason FROM events",
    "turns": "SELECT * FROM turns ORDER BY id",
    "tool_calls": "SELECT * FROM tool_calls ORDER BY id",
    "notices": "SELECT worker, ref, kind, posted_at, shown_at, acked_at, via FROM notices ORDER BY id",
    "sessions": "SELECT * FROM sessions",
}


async def _rows(connection: AsyncConnection, query: str) -> list[Row]:
    return [dict(row) for row in (await connection.execute(text(query))).mappings()]
