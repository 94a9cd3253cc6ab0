"""Run records made by hand, for tests of the report."""

from __future__ import annotations

from typing import Any

from agensh.entries import Entry, EntryType
from agensh.rundir import RunInfo, ServiceUrls
from agensh.runs.checkpoints import Checkpoint
from agensh.runs.record import Record
from agensh.spec import parse_spec

T0 = 1_800_000_000.0


def run_info(workers: int = 2) -> RunInfo:
    """Return the facts of a run that never ran."""
    url = "http://127.0.0.1:1"
    return RunInfo(
        run_id="demo-1",
        created_at=T0 - 10,
        spec=parse_spec(
            {
                "team": {"name": "demo", "workers": workers},
                "task": {"kind": "rebuild", "goal": "goal.md", "reference": "reference"},
            }
        ),
        urls=ServiceUrls(forge=url, chat=url, board=url, node=url),
        board="demo",
        owner="demo",
        repository="workspace",
        channel="task",
        chat_team="demo",
    )


def checkpoint(at: float, passed: int, total: int = 100) -> Checkpoint:
    """Return the grade of main `at` seconds after t0."""
    return Checkpoint(sha=f"{at:040.0f}", tree="t", at=T0 + at, passed=passed, total=total, build_ok=True)


def entry(seq: int, worker: int, type_: EntryType, content: str, at: float) -> Entry:
    """Return an entry written `at` seconds after t0."""
    return Entry(seq=seq, worker=f"demo-worker{worker}", type=type_, content=content, created_at=T0 + at)


def call(tool: str, summary: str, *, ok: bool = True, kind: str = "mcp", at: float = 1.0) -> dict[str, Any]:
    """Return a tool call of the first worker."""
    return {
        "worker": "demo-worker1",
        "tool": tool,
        "kind": kind,
        "ok": ok,
        "summary": summary,
        "started_at": T0 + at,
        "ended_at": T0 + at + 0.1,
    }


def turn(worker: int, start: float, end: float, outcome: str = "completed", **tokens: float) -> dict[str, Any]:
    """Return a turn between two times after t0."""
    zero = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0, "cost_usd": 0.0}
    return {
        "worker": f"demo-worker{worker}",
        "started_at": T0 + start,
        "ended_at": T0 + end,
        "outcome": outcome,
        **zero,
        **tokens,
    }


def pull(number: int, merged_at: float | None) -> dict[str, Any]:
    """Return a pull request of the first worker."""
    return {
        "number": number,
        "merged": merged_at is not None,
        "merged_at": None if merged_at is None else T0 + merged_at,
        "merged_by": "demo-worker1",
        "head_sha": f"{number:040x}",
    }


def notice(posted: float, shown: float | None, via: str = "mcp") -> dict[str, Any]:
    """Return a notice posted and shown at times after t0."""
    return {
        "worker": "demo-worker2",
        "ref": "g1",
        "kind": "entry",
        "posted_at": T0 + posted,
        "shown_at": None if shown is None else T0 + shown,
        "acked_at": None,
        "via": via,
    }


def event(state: str, attempts: int = 1) -> dict[str, Any]:
    """Return an event of the second worker."""
    return {"worker": "demo-worker2", "source": "gitea", "kind": "comment", "state": state, "handed_out": attempts}


def record(**parts: Any) -> Record:
    """Return a finished run of 100 seconds with the given parts."""
    finished: dict[str, Any] = {"info": run_info(), "t0": T0, "stopped_at": T0 + 100, "state": "finished"}
    return Record(**(finished | parts))
