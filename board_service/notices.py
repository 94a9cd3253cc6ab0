"""What an agent has not seen yet, as text. Pressing types first, the rest counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agensh.entries import NOTICE_ORDER, Entry, EntryType
from agensh.text import one_line
from board_service.board import is_shown

_RANK = {type_: rank for rank, type_ in enumerate(NOTICE_ORDER)}


@dataclass(frozen=True, slots=True)
class Notice:
    """One line of a pending answer."""

    id: str
    text: str


def pick(unseen: Iterable[Entry], agent: str, now: float, limit: int) -> tuple[list[Entry], dict[EntryType, int]]:
    """Return the `limit` most pressing of what others wrote and still stands, and how many there are by type."""
    others = [entry for entry in unseen if entry.worker != agent and is_shown(entry, now)]
    counts = Counter(entry.type for entry in others)
    others.sort(key=lambda entry: (_RANK[entry.type], -entry.seq))
    return others[:limit], dict(counts)


def notice(entry: Entry, now: float) -> Notice:
    """Return an entry as agents read it: `[demo-worker1/FAIL +0.4m] content (G1)`."""
    age = max(0.0, now - entry.created_at) / 60
    return Notice(
        f"g{entry.seq}", f"[{entry.worker}/{entry.type} +{age:.1f}m] {one_line(entry.content)} ({entry.label})"
    )


def notices(
    picked: Iterable[Entry],
    counts: Mapping[EntryType, int],
    board: str,
    after: int,
    cursor: int,
    now: float,
    *,
    older: int = 0,
) -> list[Notice]:
    """Return the lines: by type in the order of pressure, by seq within one, and at last what was left out.

    `older` says how many entries before those of `counts` were not looked at.
    """
    shown = sorted(picked, key=lambda entry: (_RANK[entry.type], entry.seq))
    lines = [notice(entry, now) for entry in shown]
    left = Counter(counts)
    left.subtract(Counter(entry.type for entry in shown))
    left_out = [(type_, left[type_]) for type_ in NOTICE_ORDER if left[type_] > 0]
    if left_out or older:
        total = sum(count for _, count in left_out) + older
        kinds = ", ".join([f"{count} {type_}" for type_, count in left_out] + ([f"{older} older"] if older else []))
        text = f"{total} more {'entry' if total == 1 else 'entries'} ({kinds}): GET /board/{board}?after={after}"
        lines.append(Notice(f"more-{after}-{cursor}", text))
    return lines
