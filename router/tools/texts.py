"""How tool results are worded: times, lists, lengths."""

from __future__ import annotations

from agensh.clock import utc

ROW_ROOM = 10_000  # characters of one item among several: a huge one must not push the others out
TEXT_ROOM = 40_000  # characters of one result; Claude Code shows results of up to 50,000 whole, see router.mcp.notices


def minutes(since: float, now: float) -> str:
    """Return how long ago that was, in minutes: `3.2 min ago`."""
    return f"{max(0.0, now - since) / 60:.1f} min ago"


def stamp(seconds: float) -> str:
    """Return epoch seconds as `2026-01-31 09:30 UTC`."""
    return utc(seconds).strftime("%Y-%m-%d %H:%M UTC")


def clip(text: str, room: int) -> str:
    """Return the beginning of `text` in at most `room` characters, saying how much is left out."""
    if len(text) <= room:
        return text
    mark = f"\n… ({len(text) - room} more characters left out)"
    return text[:room] + mark


def clip_newest(rows: list[str], room: int) -> list[str]:
    """Keep the first rows that fit in `room` characters, at least one."""
    used = 0
    for kept, row in enumerate(rows):
        used += len(row) + 1
        if used > room:
            return rows[: max(1, kept)]
    return rows


def clip_oldest(rows: list[str], room: int) -> tuple[list[str], int]:
    """Keep the last rows that fit in `room` characters, at least one; return them and how many were left out."""
    used = 0
    for kept, row in enumerate(reversed(rows)):
        used += len(row) + 1
        if used > room and kept:
            return rows[len(rows) - kept :], len(rows) - kept
    return rows, 0
