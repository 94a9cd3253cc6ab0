"""What the worker reads: its prompt, event lines, board lines, notices, claims, messages. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agensh.entries import EntryType

NOTICE_HEADER = "[agensh notices]"
CONTEXT_HEADER = "==== SHARED CONTEXT ===="
_WORKER = r"[a-z][a-z0-9-]*-worker[1-9][0-9]{0,3}"
_TYPES = "|".join(EntryType)
_FIELD = re.compile(r"(?P<key>[a-z_]+)=(?P<value>\"[^\"]*\"|\S+)")
_NOTICE_ENTRY = re.compile(
    rf"\[(?P<worker>[^/\]]+)/(?P<type>{_TYPES})[^\]]*\] (?P<content>.*?)(?: \(?G(?P<seq>\d+)\)?)?$"
)
_BOARD_ENTRY = re.compile(
    rf"G(?P<seq>\d+) \[(?P<worker>[^,\]]+), (?P<type>{_TYPES})(?P<rest>[^\]]*)\] (?P<content>.*)$"
)
_MESSAGE = re.compile(r"\[(?P<sender>[^/\]]+)/DM[^\]]*\] (?P<text>.*)$")
_REMINDER = re.compile(r"\[agensh/REMINDER[^\]]*\] (?P<text>.*)$")
_EVENT = re.compile(
    r"^\[event\] (?P<id>event_id=\S+) source=(?P<source>\S+) kind=(?P<kind>\S+)(?P<rest>.*)$", re.MULTILINE
)
_NAME = re.compile(rf"\b[Yy]ou are `({_WORKER})`")
_REPOSITORY = re.compile(r"(?:https?|file)://[^\s`'\"<>()]+\.git\b")
_REFERENCE = re.compile(r"reference[^\n`]{0,80}?[`:]\s*(?P<path>/[^\s`]+)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) (h|min|s)\b")
_SECONDS = {"h": 3600.0, "min": 60.0, "s": 1.0}
_LEFT = re.compile(r"^(?P<duration>[\d. hmins]+) (?:is|are) left\b", re.MULTILINE)
_LASTS = re.compile(r"\bThe run lasts (?P<duration>[\d. hmins]+) from\b")
_AREA = re.compile(r"(?P<audit>audit )?(?P<tool>[A-Za-z0-9_-]+): ")


@dataclass(frozen=True, slots=True)
class BoardLine:
    """An entry as the worker sees it."""

    worker: str
    type: EntryType
    content: str
    seq: int = 0
    active: bool = True

    @property
    def label(self) -> str:
        return f"G{self.seq}"


@dataclass(frozen=True, slots=True)
class Message:
    """A direct message."""

    sender: str
    text: str


@dataclass(frozen=True, slots=True)
class Reminder:
    """What the run's clock says in the middle of a turn."""

    text: str

    @property
    def last_call(self) -> bool:
        """Whether this is the last call; else it is the wind-down."""
        return "last call" in self.text


Notice = BoardLine | Message | Reminder


@dataclass(frozen=True, slots=True)
class Event:
    """One line of what waited in the queue."""

    source: str
    kind: str
    summary: str
    id: str = ""
    sender: str = ""
    """direct_message only."""
    observed_at: float = 0.0
    """Epoch seconds."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt told."""

    worker: str = ""
    repository: str = ""
    reference: str = ""
    deadline: float = 0.0
    """When the run ends, epoch seconds; 0 when it does not say."""
    events: tuple[Event, ...] = ()
    context: tuple[BoardLine, ...] = field(default=())

    def has(self, kind: str) -> bool:
        """Say whether an event of that kind came."""
        return any(event.kind == kind for event in self.events)


def read_prompt(text: str) -> Prompt:
    """Take from a prompt what the worker needs to know; what is not in it stays empty."""
    # The header also occurs in running text; the section begins where it stands alone on a line.
    head, _, shared = text.partition(f"\n{CONTEXT_HEADER}\n")
    # From the first event on the text may hold words of others, which must not redirect me.
    briefing = head[: first.start()] if (first := _EVENT.search(head)) else head
    name = _NAME.search(briefing)
    repository = _REPOSITORY.search(briefing)
    reference = _REFERENCE.search(briefing)
    events = []
    for match in _EVENT.finditer(text):
        words, _, summary = match["rest"].partition(" summary: ")
        said = fields_of(f"{match['id']} {words}")
        events.append(
            Event(match["source"], match["kind"], summary, said.get("event_id", ""), said.get("from", ""), _epoch(said))
        )
    return Prompt(
        worker=name[1] if name else "",
        repository=repository[0] if repository else "",
        reference=reference["path"].rstrip(".,;") if reference else "",
        deadline=_deadline(head, events),
        events=tuple(events),
        context=tuple(board_lines(shared)),
    )


def _epoch(said: dict[str, str]) -> float:
    try:
        return datetime.fromisoformat(said["observed_at"]).timestamp()
    except (KeyError, ValueError):
        return 0.0


def _deadline(text: str, events: Sequence[Event]) -> float:
    """Add what the prompt says is left to the time of the control event that says it."""
    said = _LEFT.search(text) or _LASTS.search(text)
    times = [event.observed_at for event in events if event.source == "control" and event.observed_at]
    if said is None or not times:
        return 0.0
    return max(times) + sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(said["duration"]))


def fields_of(text: str) -> dict[str, str]:
    """Return the `key=value` words of the first line."""
    first = text.partition("\n")[0]
    return {match["key"]: match["value"].strip('"') for match in _FIELD.finditer(first)}


def board_lines(text: str) -> list[BoardLine]:
    """Return the entries in a text, in the form of the listing or of notices; other lines are skipped."""
    return [line for row in text.splitlines() if isinstance(line := _line(row), BoardLine)]


def split_notices(text: str) -> tuple[str, list[Notice]]:
    """Part a tool's own text from the notices that came with it."""
    own: list[str] = []
    notices: list[Notice] = []
    inside = False
    for row in text.splitlines():
        if row.strip() == NOTICE_HEADER:
            inside = True
        elif inside and (found := _line(row)) is not None:
            notices.append(found)
        elif inside and row.rstrip().endswith("call board_pending"):
            continue
        else:
            # A block of the tool's own that follows a notice block put in front of it.
            inside = False
            own.append(row)
    return "\n".join(own), notices


def _line(row: str) -> Notice | None:
    row = row.strip()
    if match := _REMINDER.match(row):
        return Reminder(match["text"])
    if match := _MESSAGE.match(row):
        return Message(match["sender"], match["text"])
    if match := _NOTICE_ENTRY.match(row):
        return BoardLine(match["worker"], EntryType(match["type"]), match["content"], int(match["seq"] or 0))
    if match := _BOARD_ENTRY.search(row):
        inactive = re.search(r"expired|released|no longer active", match["rest"]) is not None
        content = match["content"].removesuffix(" (+detail)")
        return BoardLine(match["worker"], EntryType(match["type"]), content, int(match["seq"]), active=not inactive)
    return None


def claim_text(kind: str, tool: str, title: str) -> str:
    """Return the content of a CLAIM; at most 100 characters."""
    return f"{'audit ' if kind == 'audit' else ''}{tool}: {title}"[:100]


def area_of(content: str) -> tuple[str, str] | None:
    """Return (kind, tool) of a CLAIM's content: `wc: …`, `audit wc: …`, `core: …`; None when it names none."""
    match = _AREA.match(content)
    if match is None:
        return None
    if match["audit"]:
        return "audit", match["tool"]
    return ("core" if match["tool"] == "core" else "area"), match["tool"]


def rivals(lines: Iterable[BoardLine], me: str, area: tuple[str, str]) -> list[BoardLine]:
    """Return the active CLAIMs of others on the same area, earliest first."""
    found = [
        line
        for line in lines
        if line.type is EntryType.CLAIM and line.active and line.worker != me and area_of(line.content) == area
    ]
    return sorted(found, key=lambda line: line.seq)


def keeps(mine: int, others: Iterable[BoardLine]) -> bool:
    """Say whether the CLAIM with the number `mine` is the earliest: the earlier one keeps the area."""
    return all(mine < other.seq for other in others)
