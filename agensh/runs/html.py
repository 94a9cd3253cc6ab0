"""The report as one self-contained HTML page: figures, curves, a timeline of the workers. No script, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agensh.entries import EntryType
from agensh.gateway.accounts import dollars
from agensh.runs.cost import Cost, rows_of
from agensh.runs.record import Record
from agensh.runs.report import Report, build_report, merge_times, wall_seconds
from agensh.text import one_line

WIDTH = 900
HEIGHT = 220
LEFT = 44
BOTTOM = 24
TOP = 10
ROW = 22
TYPE_COLOURS = {
    EntryType.OBSERVED: "#7a8ca3",
    EntryType.FACT: "#2f7ed8",
    EntryType.FAIL: "#d33c3c",
    EntryType.CLAIM: "#e0a100",
    EntryType.PATCH_SUMMARY: "#2e9e5b",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps seconds since t0 to pixels."""

    wall: float

    def x(self, seconds: float) -> float:
        """Return the horizontal position of a time."""
        share = min(1.0, max(0.0, seconds / self.wall)) if self.wall else 0.0
        return round(LEFT + share * (WIDTH - LEFT - 10), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and labels of about six round times."""
        for step in (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200):
            if self.wall / step <= 7:
                break
        return [(self.x(at), clock_label(at)) for at in range(0, int(self.wall) + 1, step)]


def clock_label(seconds: float) -> str:
    """Return `m:ss`, or `h:mm:ss` from an hour on."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
    return f"{whole // 60}:{whole % 60:02}"


def y_of(share: float) -> float:
    """Return the vertical position of a share between 0 and 1."""
    return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)


def staircase(points: Sequence[tuple[float, float]], axis: Axis) -> str:
    """Return an SVG path that holds each value until the next point."""
    if not points:
        return ""
    path = f"M {axis.x(points[0][0])} {y_of(points[0][1])}"
    for at, share in points[1:]:
        path += f" H {axis.x(at)} V {y_of(share)}"
    return path + f" H {axis.x(axis.wall)}"


def polyline(points: Sequence[tuple[float, float]], axis: Axis) -> str:
    """Return an SVG path through measured points; what lies between two of them is not known."""
    return "M " + " L ".join(f"{axis.x(at)} {y_of(share)}" for at, share in points) if points else ""


def cumulative(times: Sequence[float], t0: float) -> list[tuple[float, float]]:
    """Return (seconds, share of the total) after each event."""
    total = len(times)
    return [(0.0, 0.0), *((at - t0, (index + 1) / total) for index, at in enumerate(times))] if total else []


@dataclass(frozen=True, slots=True)
class Lane:
    """One worker's row of the timeline, in pixels."""

    worker: str
    y: int
    turns: list[tuple[float, float, str]]
    marks: list[tuple[float, str, str]]
    merges: list[float]


def lanes(record: Record, axis: Axis) -> list[Lane]:
    """Return a row for each worker with its turns, entries and merges."""
    t0 = record.t0 or 0.0
    rows = []
    for index, worker in enumerate(record.info.spec.worker_names):
        rows.append(
            Lane(
                worker=worker,
                y=index * ROW,
                turns=[
                    (
                        axis.x(turn["started_at"] - t0),
                        max(1.0, axis.x((turn["ended_at"] or axis.wall + t0) - t0) - axis.x(turn["started_at"] - t0)),
                        one_line(str(turn["outcome"] or "running")),
                    )
                    for turn in record.turns
                    if turn["worker"] == worker
                ],
                marks=[
                    (
                        axis.x(entry.created_at - t0),
                        TYPE_COLOURS[entry.type],
                        f"{entry.label} {entry.type}: {one_line(entry.content)}",
                    )
                    for entry in record.entries
                    if entry.worker == worker
                ],
                merges=[
                    axis.x(float(pull["merged_at"]) - t0)
                    for pull in record.pulls
                    if pull["merged"] and pull["merged_at"] and pull["merged_by"] == worker
                ],
            )
        )
    return rows


def figures(report: Report) -> list[tuple[str, str]]:
    """Return the report's single figures as (label, text), in the order in which they are shown everywhere."""

    def share(value: float | None) -> str:
        return "not graded" if value is None else f"{value:.1%}"

    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f} s"

    return [
        ("pass rate of main", share(report.pass_rate_final)),
        ("workers", f"{report.workers} ({report.harness})"),
        ("wall time", clock_label(report.wall_s)),
        ("turns", f"{report.turns} ({report.turns_failed} failed)"),
        ("pull requests merged", str(report.merges)),
        ("merges refused", str(report.merge_refusals)),
        ("conflicts resolved", str(report.conflicts_resolved)),
        ("pushes rejected", str(report.push_rejections)),
        ("commits stranded", str(report.commits_stranded)),
        ("entries", ", ".join(f"{count} {name}" for name, count in report.entries.items())),
        ("claims", f"{report.claims} ({report.duplicate_claims} met an active one)"),
        ("direct messages", str(report.direct_messages)),
        ("channel posts", str(report.channel_posts)),
        ("notices shown mid-turn", str(report.notices_mid_turn)),
        ("notice delay", f"p50 {seconds(report.notice_delay_s.p50)}, p99 {seconds(report.notice_delay_s.p99)}"),
        (
            "events",
            f"{report.events_delivered} delivered, {report.events_redelivered} redelivered, {report.events_dead} dead",
        ),
        (
            "tokens",
            ", ".join(f"{count:,} {kind}" for kind, count in report.tokens.items()) + f"; ${report.cost_usd:.2f}",
        ),
        *(money(report.cost) if report.cost is not None else []),
    ]


def money(cost: Cost) -> list[tuple[str, str]]:
    """Return what the gateway says of a run, as (label, text)."""
    total = cost.total
    notes = [
        f"{count:,} {what}"
        for count, what in (
            (total.failed, "failed"),
            (total.unmetered, "unmetered"),
            (total.unpriced, "of a model without a price"),
            (cost.refused, "refused"),
        )
        if count
    ]
    per_merge, share = cost.per_merge_usd, total.cache_share
    found = [
        ("requests to the provider", ", ".join([f"{total.requests:,}", *notes])),
        ("cost per merged pull request", "–" if per_merge is None else dollars(per_merge)),
        ("cache hits", "–" if share is None else f"{share:.1%} of the input"),
    ]
    for whose, budget in (("team", cost.budget_usd), ("worker", cost.worker_budget_usd)):
        stopped = [stop for stop in cost.stops if stop.budget == whose]
        if not budget:
            continue
        text = f"{dollars(budget)}"
        if whose == "team":
            text += f", {dollars(total.cost_usd)} spent"
        if stopped:
            first = clock_label(stopped[0].at_s)
            text += f"; workers stopped: {len(stopped)}, the first at {first}"
        found.append((f"budget of {'the team' if whose == 'team' else 'each worker'}", text))
    return found


def render_html(record: Record) -> str:
    """Return the whole page."""
    report = build_report(record)
    axis = Axis(max(1.0, wall_seconds(record)))
    t0 = record.t0 or 0.0
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        report=report,
        figures=figures(report),
        axis=axis,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        row=ROW,
        y_of=y_of,
        pass_path=polyline(report.pass_rate_curve, axis),
        merge_path=staircase(cumulative(merge_times(record), t0), axis),
        entry_path=staircase(cumulative([entry.created_at for entry in record.entries], t0), axis),
        points=[(axis.x(at), y_of(share), f"{share:.1%} at {clock_label(at)}") for at, share in report.pass_rate_curve],
        lanes=lanes(record, axis),
        parked={worker: one_line(reason) for worker, reason in report.parked.items()},
        colours={str(type_): colour for type_, colour in TYPE_COLOURS.items()},
        clock_label=clock_label,
        costs=rows_of(report.cost) if report.cost is not None else [],
        dollars=dollars,
        one_line=one_line,
    )
