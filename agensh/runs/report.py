"""The figures of a run, each counted from its record.

`Report.to_json` is what `agensh report --json` prints; times in it are seconds since the run's `t0`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agensh.clock import RunClock
from agensh.entries import EntryType
from agensh.runs.cost import Cost
from agensh.runs.record import Record, Row


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 99th percentile in seconds; None when there was nothing to measure."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did. Every field is documented in `docs/report.md`."""

    run: str
    team: str
    state: str
    harness: str
    workers: int
    wall_s: float
    pass_rate_final: float | None
    pass_rate_curve: list[tuple[float, float]]
    entries: dict[str, int]
    direct_messages: int
    channel_posts: int
    notices_mid_turn: int
    notice_delay_s: Percentiles
    events_delivered: int
    events_redelivered: int
    events_dead: int
    turns: int
    turns_failed: int
    merges: int
    merge_refusals: int
    conflicts_resolved: int
    push_rejections: int
    claims: int
    duplicate_claims: int
    commits_stranded: int
    tokens: dict[str, int]
    cost_usd: float
    cost: Cost | None
    parked: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self) | {"cost": None if self.cost is None else self.cost.to_json()}


def build_report(record: Record) -> Report:
    """Count a run's figures from its record."""
    info = record.info
    entries = Counter(str(entry.type) for entry in record.entries)
    merge_calls = [call for call in record.tool_calls if call["tool"] == "forge_pull_merge"]
    refused = [call for call in merge_calls if not call["ok"]]
    merged = {pull["number"] for pull in record.pulls if pull["merged"]}
    conflicted = {number for call in refused if (number := conflicted_pull(call)) is not None}
    conflicted |= met_in_clones(record.tool_calls)
    mid_turn = [notice for notice in record.notices if notice["via"] != "turn" and notice["shown_at"] is not None]
    sent = [event for event in record.events if event["state"] == "sent"]
    return Report(
        run=info.run_id,
        team=info.spec.team.name,
        state=record.state,
        harness=info.spec.worker.harness,
        workers=info.spec.team.workers,
        wall_s=round(wall_seconds(record), 1),
        pass_rate_final=round(record.grades[-1].pass_rate, 4) if record.grades else None,
        pass_rate_curve=pass_rate_curve(record),
        entries={str(type_): entries[str(type_)] for type_ in EntryType},
        direct_messages=sum(bool(post["direct"]) for post in record.posts),
        channel_posts=sum(not post["direct"] for post in record.posts),
        notices_mid_turn=len(mid_turn),
        notice_delay_s=percentiles(notice["shown_at"] - notice["posted_at"] for notice in mid_turn),
        events_delivered=len(sent),
        events_redelivered=sum(event["handed_out"] > 1 for event in sent),
        events_dead=sum(event["state"] == "dead" for event in record.events),
        turns=len(record.turns),
        turns_failed=sum(turn["outcome"] not in _FINE for turn in record.turns),
        merges=len(merged),
        merge_refusals=len(refused),
        conflicts_resolved=len(conflicted & merged),
        push_rejections=sum(is_rejected_push(call) for call in record.tool_calls),
        claims=entries[EntryType.CLAIM],
        duplicate_claims=sum(had_overlap(call) for call in record.tool_calls),
        commits_stranded=len(record.stranded),
        tokens=tokens_of(record),
        cost_usd=round(
            sum(float(turn["cost_usd"] or 0.0) for turn in record.turns)
            if record.cost is None
            else record.cost.total.cost_usd,
            4,
        ),
        cost=record.cost,
        parked={row["worker"]: row["parked_reason"] for row in record.sessions if row["parked_reason"]},
    )


def tokens_of(record: Record) -> dict[str, int]:
    """Return the run's tokens: as the gateway metered them, or as the CLIs reported them in a run without one."""
    kinds = ("input", "cached", "output", "reasoning")
    if record.cost is not None:
        return {kind: int(getattr(record.cost.total, kind)) for kind in kinds}
    return {kind: sum(int(turn[f"{kind}_tokens"] or 0) for turn in record.turns) for kind in kinds}


_MERGING = re.compile(r"\bgit (merge|rebase|pull|cherry-pick)\b")
_FINE = {"completed", "interrupted", None}


def wall_seconds(record: Record) -> float:
    """Return how long the run took: from `t0` to its end, or to the last thing recorded when it has no end yet.

    A run that was resumed after its deadline ended at the deadline.
    """
    if record.t0 is None:
        return 0.0
    last = max((float(call["ended_at"] or call["started_at"]) for call in record.tool_calls), default=record.t0)
    deadline = RunClock(record.t0, record.info.spec.clock.timing()).deadline
    end = last if record.stopped_at is None else min(record.stopped_at, max(deadline, last))
    return max(0.0, end - record.t0)


def pass_rate_curve(record: Record) -> list[tuple[float, float]]:
    """Return the graded points of main as (seconds since t0, pass rate), oldest first."""
    t0 = record.t0 or (record.grades[0].at if record.grades else 0.0)
    return [(round(max(0.0, grade.at - t0), 1), round(grade.pass_rate, 4)) for grade in record.grades]


def percentiles(values: Iterable[float]) -> Percentiles:
    """Return median and 99th percentile (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return Percentiles(None, None)

    def rank(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)

    return Percentiles(rank(0.5), rank(0.99))


def words(summary: str) -> dict[str, str]:
    """Return the `key=value` words of a tool result's first line."""
    first = summary.split("\n", 1)[0]
    return dict(word.split("=", 1) for word in first.split() if "=" in word)


def conflicted_pull(call: Row) -> int | None:
    """Return the pull request's number when this merge call was refused for a conflict."""
    found = words(call["summary"] or "")
    if found.get("status") == "conflict" and found.get("pull", "").isdigit():
        return int(found["pull"])
    return None


def met_in_clones(calls: Sequence[Row]) -> set[int]:
    """Return the pull requests before whose merge `git merge` or `git rebase` stopped with a conflict in the clone.

    A conflict belongs to the pull request that its worker merges next.
    """
    met: set[int] = set()
    waiting: set[str] = set()
    for call in calls:
        summary = call["summary"] or ""
        if call["kind"] == "shell":
            if _MERGING.search(summary) and "CONFLICT (" in summary:
                waiting.add(call["worker"])
        elif call["tool"] == "forge_pull_merge" and call["ok"] and call["worker"] in waiting:
            waiting.discard(call["worker"])
            number = words(summary).get("pull", "")
            met |= {int(number)} if number.isdigit() else set()
    return met


def had_overlap(call: Row) -> bool:
    """Say whether this call wrote a CLAIM that met an active one of somebody else."""
    if call["tool"] != "board_write" or not call["ok"]:
        return False
    return words(call["summary"] or "").get("overlaps", "0") not in {"0", ""}


def is_rejected_push(call: Row) -> bool:
    """Say whether this shell call is a `git push` that the forge rejected."""
    if call["kind"] != "shell" or call["ok"]:
        return False
    summary = call["summary"] or ""
    return "git push" in summary and "rejected" in summary


def merge_times(record: Record) -> Sequence[float]:
    """Return when each pull request was merged (epoch seconds), oldest first."""
    return sorted(float(pull["merged_at"]) for pull in record.pulls if pull["merged"] and pull["merged_at"])
