"""Markers, and what tool results and prompts show of them.

Every entry and direct message of a rehearsal carries a marker of its own (`me12x7`: number 7 of the worker with index
12; `md…` for a message), so that each showing can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NOTICES = "[agensh notices]"
CONTEXT = "==== SHARED CONTEXT ===="
_MARKER = re.compile(r"\bm([ed])\d+x\d+\b")
_POSTS = re.compile(
    r"^\[event\] event_id=(p\S+) source=mattermost kind=(?:channel_post|mention) observed_at=\S+(?: count=(\d+))?",
    re.MULTILINE,
)
_MORE = re.compile(r"^\(?(\d+) more: call", re.MULTILINE)


def entry_marker(worker: int, number: int) -> str:
    """Return the marker of a worker's entry."""
    return f"me{worker}x{number}"


def message_marker(worker: int, number: int) -> str:
    """Return the marker of a worker's direct message."""
    return f"md{worker}x{number}"


@dataclass(frozen=True, slots=True)
class Posts:
    """Posts of the task channel in one line of a prompt: from `first` to `last`, `count` of them."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What one tool result or prompt showed without having been asked for it."""

    entries: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    more: int = 0
    """How many it counted and did not show."""
    posts: tuple[Posts, ...] = ()
    """What a prompt told of the task channel."""


def read_result(blocks: Sequence[str]) -> Seen:
    """Return what the notices in a tool result show; `blocks` are its texts.

    A notice is a block of its own, or the rest of the block of `board_pending` after its first line. What a tool was
    asked for (a listing of the board, say) is no notice.
    """
    notices = []
    for block in blocks:
        text = block.strip()
        if text.startswith("status=ok pending="):
            text = text.partition("\n")[2]
        if text.startswith(NOTICES):
            notices.append(text)
    if not notices:
        return Seen()
    shown = [_markers(notice) for notice in notices]
    return Seen(
        tuple(marker for entries, _ in shown for marker in entries),
        tuple(marker for _, messages in shown for marker in messages),
        _more(notices[-1]),
    )


def read_prompt(prompt: str) -> Seen:
    """Return what the prompt of a turn shows: messages in its event lines, entries in its shared context."""
    events, _, context = prompt.rpartition(CONTEXT)
    direct = "\n".join(line for line in events.split("\n") if "kind=direct_message" in line)
    return Seen(tuple(_markers(context)[0]), tuple(_markers(direct)[1]), _more(context), tuple(_posts(events)))


def _posts(events: str) -> Iterator[Posts]:
    for named, count in _POSTS.findall(events):
        first, dots, last = named.partition("..")
        if dots:
            yield Posts(int(first[1:]), int(last[1:]), int(count))
            continue
        for ref in named.split(","):
            yield Posts(int(ref[1:]), int(ref[1:]), 1)


def _markers(text: str) -> tuple[list[str], list[str]]:
    found = [match.group(0) for match in _MARKER.finditer(text)]
    return [marker for marker in found if marker[1] == "e"], [marker for marker in found if marker[1] == "d"]


def _more(text: str) -> int:
    found = _MORE.findall(text)
    return int(found[-1]) if found else 0
