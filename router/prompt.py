"""The prompt of a turn.

    [event] event_id=… source=… kind=… observed_at=… summary: …     what happened, a line each
    (the text of a control event, where it has one)
    ==== SHARED CONTEXT ====                                        the unread entries

The first turn of a session begins with the worker prompt. Events come in the order control, direct messages, mentions,
the rest; those of one thread and kind share a line. What others wrote is one line each time and cannot forge a mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agensh.clock import iso
from agensh.entries import Entry
from agensh.spec import TeamSpec
from agensh.text import handle, one_line
from prompts import render
from router.desk import SharedContext
from router.events import MESSAGE_CAP, Kind, Priority, QueuedEvent

CONTEXT_HEADER = "==== SHARED CONTEXT ===="
SUMMARY_CAP = 400  # characters of one event
NAMED = 20  # events of a combined line that are named one by one
COMBINED = 3  # summaries a combined line shows; the newest
_BAR = re.compile(r"(?<!\S)\|(?!\S)")
_CONTROL_TEXTS = {
    Kind.START: "start.md",
    Kind.RESUMED: "resumed.md",
    Kind.IDLE: "idle.md",
    Kind.PUBLISH_REMINDER: "publish_reminder.md",
    Kind.WIND_DOWN: "wind_down.md",
    Kind.LAST_CALL: "last_call.md",
    Kind.BUDGET_80: "budget_80.md",
    Kind.BUDGET_95: "budget_95.md",
}


@dataclass(frozen=True, slots=True)
class Briefing:
    """What the texts say about the run; the same for every worker but for the name."""

    worker: str
    team: str
    workers: int
    kind: str
    clone_url: str
    reference: str
    goal: str
    acceptance: str
    budget: str
    claim_ttl: str
    idle: str

    @classmethod
    def of(cls, spec: TeamSpec, worker: str, *, clone_url: str, reference: str, goal: str) -> Briefing:
        """Take it from the spec; durations as they pass in this run (divided by its speed)."""
        speed = spec.clock.speed
        return cls(
            worker=worker,
            team=spec.team.name,
            workers=spec.team.workers,
            kind=spec.task.kind,
            clone_url=clone_url,
            reference=reference,
            goal=goal,
            acceptance=spec.task.acceptance or "",
            budget=duration(spec.clock.budget / speed),
            claim_ttl=duration(spec.board.claim_ttl / speed),
            idle=duration(spec.clock.idle / speed),
        )

    def worker_prompt(self) -> str:
        """Return the text that begins every session."""
        return render(
            "worker.md",
            worker=self.worker,
            team=self.team,
            workers=self.workers,
            kind=self.kind,
            clone_url=self.clone_url,
            reference=self.reference,
            goal=self.goal.strip(),
            acceptance=self.acceptance,
            budget=self.budget,
            claim_ttl=self.claim_ttl,
        )

    def control_text(self, event: QueuedEvent, left: float) -> str:
        """Return the text of a control event; `left` is the time to the deadline in seconds."""
        name = str(event.body.get("template") or _CONTROL_TEXTS.get(event.kind, ""))
        if not name:
            return ""
        return render(
            name,
            kind=self.kind,
            workers=self.workers,
            idle=self.idle,
            left=duration(left),
            fresh=bool(event.body.get("fresh")),
            spent=str(event.body.get("spent", "")),
            limit=str(event.body.get("limit", "")),
        )


def duration(seconds: float) -> str:
    """Return a duration for a reader: `6 h`, `1 h 30 min`, `45 s`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join(part for part in (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "") if part)


def entry_line(entry: Entry, now: float) -> str:
    """Return the line of a listing: `G12 [demo-worker3, FAIL, 3.2 min ago] content`."""
    minutes = max(0.0, now - entry.created_at) / 60
    more = " (+detail)" if entry.has_detail else ""
    return (
        f"{entry.label} [{handle(entry.worker)}, {entry.type}, {minutes:.1f} min ago] {one_line(entry.content)}{more}"
    )


def event_lines(events: Sequence[QueuedEvent]) -> list[str]:
    """Return the event lines of a turn, ordered, those of one thread and kind combined."""
    groups: dict[tuple[object, ...], list[QueuedEvent]] = {}
    for event in sorted(events, key=lambda event: (event.priority, abs(event.id))):
        alone = event.priority in (Priority.CONTROL, Priority.DIRECT) or not event.thread
        groups.setdefault((event.id,) if alone else (event.thread, event.kind), []).append(event)
    return [_line(group) for group in groups.values()]


def _line(group: Sequence[QueuedEvent]) -> str:
    newest = group[-1]
    refs = [event.ref for event in group]
    named = ",".join(refs) if len(refs) <= NAMED else f"{refs[0]}..{refs[-1]}"
    words = [f"event_id={named}", f"source={newest.source}", f"kind={newest.kind}"]
    words.append(f"observed_at={iso(newest.observed_at)}")
    if len(group) > 1:
        words.append(f"count={len(group)}")
    if newest.kind is Kind.DIRECT_MESSAGE:
        words.append(f"from={handle(str(newest.body.get('author', '')))}")
    shown = [_summary(event) for event in group[-COMBINED:]]
    if len(shown) > 1:
        # The bar stands between two summaries, so it must not stand in one.
        shown = [_BAR.sub("/", summary) for summary in shown]
    earlier = len(group) - len(shown)
    text = " | ".join(shown) + (f" (+{earlier} earlier in this thread)" if earlier else "")
    return f"[event] {' '.join(words)} summary: {text}"


def _summary(event: QueuedEvent) -> str:
    if event.kind is Kind.DIRECT_MESSAGE and event.body.get("text"):
        return one_line(str(event.body["text"]), MESSAGE_CAP)
    return one_line(event.summary, SUMMARY_CAP)


def context_text(context: SharedContext, now: float) -> str:
    """Return the section with the unread entries; what was left out is counted, with the call that reads it."""
    lines = [CONTEXT_HEADER]
    lines += [entry_line(entry, now) for entry in context.entries]
    if context.left_out:
        lines.append(f"({context.left_out} more: call board_read with after={context.after})")
    elif not context.entries:
        lines.append("(no unread entries)")
    return "\n".join(lines)


def turn_prompt(
    briefing: Briefing,
    events: Sequence[QueuedEvent],
    context: SharedContext,
    *,
    first: bool,
    now: float,
    left: float,
    posts_left: int = 0,
) -> str:
    """Return the prompt of a turn; `first` puts the worker prompt before it, `posts_left` is told after the events."""
    parts = [briefing.worker_prompt().rstrip()] if first else []
    lines = event_lines(events)
    if posts_left:
        lines.append(f"({posts_left} more posts of the task channel come with your next turn)")
    parts.append("\n".join(lines))
    control = sorted((event for event in events if event.priority is Priority.CONTROL), key=lambda event: event.id)
    texts = [briefing.control_text(event, left).rstrip() for event in control]
    parts += [text for text in dict.fromkeys(texts) if text]
    parts.append(context_text(context, now))
    return "\n\n".join(parts) + "\n"
