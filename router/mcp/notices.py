"""Notices: what waits for a worker, put into the result of its next tool call.

Pure and free of third-party imports: the stdio shim loads this module and has to stay small. `render_notice` writes the
text; `place` decides where it goes in a result so that the model really reads it; `add_notice` puts it there. The
reasons stand in docs/decisions/notices-in-tool-results.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agensh.entries import NOTICE_ORDER, Entry, content_cap
from agensh.text import handle, one_line

HEADER = "[agensh notices]"
NOTICE_ROOM = 2_000  # characters a notice may have in one result
LARGE_RESULT = 8_000  # characters; from here on harnesses shorten results, and what they keep is the beginning
PREVIEW_ROOM = 450  # characters; Copilot 1.0.102 previews the first 500 of a large result, Claude Code the first 2,000
RESULT_LIMIT = 48_000  # characters; above 50,000 Claude Code may show an error instead, without any preview
NAME_CAP = 80  # characters
MESSAGE_CAP = 700  # characters of one direct message in a notice; the whole text is one chat_read away


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A direct message, or a reminder of the run's clock, that the worker has not seen."""

    ref: str
    """`e<event id>`."""
    sender: str
    text: str
    posted_at: float
    reminder: bool = False
    """It comes from the run's clock, not from a peer."""


@dataclass(frozen=True, slots=True)
class RenderedNotice:
    """The text of one notice and what it shows."""

    text: str
    shown: tuple[str, ...]
    """Refs of what the text shows, in its order."""
    left_out: int
    """How many more wait."""


def age(since: float, now: float) -> str:
    """Return how long ago that was, in minutes: `+0.4m`."""
    return f"+{max(0.0, now - since) / 60:.1f}m"


def message_line(message: PendingMessage, now: float) -> str:
    """Return the line that shows a direct message, cut to `MESSAGE_CAP` with the call that shows the rest.

    A reminder stands as `[agensh/REMINDER +0.0m] …`; no worker can be called `agensh`.
    """
    if message.reminder:
        return f"[agensh/REMINDER {age(message.posted_at, now)}] {one_line(message.text, MESSAGE_CAP)}"
    sender = handle(message.sender, NAME_CAP)
    text = one_line(message.text, MESSAGE_CAP)
    if text != one_line(message.text, len(message.text)):
        text += f' cut: call chat_read with_="{sender}"'
    return f"[{sender}/DM {age(message.posted_at, now)}] {text}"


def entry_line(entry: Entry, now: float) -> str:
    """Return the line that shows an entry: `[demo-worker3/FAIL +0.4m] content (G12)`."""
    head = f"[{handle(entry.worker, NAME_CAP)}/{entry.type} {age(entry.created_at, now)}]"
    return f"{head} {one_line(entry.content, content_cap(entry.type))} ({entry.label})"


def compose(
    lines: Sequence[tuple[str, str]], *, room: int, more: int = 0, fetch: str = "board_pending"
) -> RenderedNotice | None:
    """Put `(ref, line)` pairs under the header in at most `room` characters; None when nothing fits or is there.

    Lines keep their order; from the first that does not fit on, the rest is counted, together with `more`, and `fetch`
    names the call that shows it.
    """
    if not lines and not more:
        return None
    longest_tail = len(_tail(len(lines) + more, fetch))
    used = len(HEADER)
    fitting = 0
    for number, (_, line) in enumerate(lines, start=1):
        used += 1 + len(line)
        if used + (0 if number == len(lines) and not more else longest_tail) > room:
            break
        fitting = number
    left_out = len(lines) - fitting + more
    text = "\n".join([HEADER, *(line for _, line in lines[:fitting])]) + (_tail(left_out, fetch) if left_out else "")
    if len(text) > room:
        return None
    return RenderedNotice(text, tuple(ref for ref, _ in lines[:fitting]), left_out)


def _tail(count: int, fetch: str) -> str:
    return f"\n{count} more: call {fetch}"


def render_notice(
    direct_messages: Sequence[PendingMessage], entries: Iterable[Entry], *, room: int, now: float, more: int = 0
) -> RenderedNotice | None:
    """Return what waits in at most `room` characters; None when nothing waits or not even a count fits.

    Direct messages first (oldest first), then entries by `NOTICE_ORDER` and their seq; the rest is counted, together
    with `more` that are not given.
    """
    rank = {type_: index for index, type_ in enumerate(NOTICE_ORDER)}
    messages = sorted(direct_messages, key=lambda message: (not message.reminder, message.posted_at))
    ordered = sorted(entries, key=lambda entry: (rank[entry.type], entry.seq))
    lines = [(message.ref, message_line(message, now)) for message in messages]
    used = sum(len(line) for _, line in lines)
    for entry in ordered:
        # A thousand entries may wait, and a dozen fit: what lies behind the first that does not is only counted.
        if used > room:
            break
        line = entry_line(entry, now)
        used += len(line)
        lines.append((f"g{entry.seq}", line))
    return compose(lines, room=room, more=more + len(messages) + len(ordered) - len(lines))


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a notice goes in one tools/call result."""

    first: bool
    """Before all other blocks (a long result is shown shortened) or after them."""
    room: int
    """Characters it may have; 0 means that this result must not carry one."""
    drop_structured: bool
    """Take `structuredContent` out: a harness that finds it shows the model nothing else."""
    data: str | None
    """The structured data as text, when no block carries it yet; appended as a block of its own."""
    alone: bool
    """There is no other block."""

    def block(self, notice: str) -> dict[str, Any]:
        """Return the notice as a block; Copilot joins blocks without a separator, so the line break is part of it."""
        if self.alone:
            return text_block(notice)
        return text_block(f"{notice}\n" if self.first else f"\n{notice}")


def place(result: dict[str, Any], *, room: int = NOTICE_ROOM) -> Placement | None:
    """Decide where a notice goes in a tools/call result; None when the result has no list of content blocks."""
    content = result.get("content")
    if not isinstance(content, list):
        return None
    texts = [
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    structured = result.get("structuredContent")
    data = None
    if structured is not None and not _carried(structured, texts):
        data = json.dumps(structured, ensure_ascii=False)
    size = sum(map(len, texts)) + len(data or "")
    failed = result.get("isError") is True
    large = size > LARGE_RESULT
    if large:
        # An error's text has to come first, so a notice behind a long one would be cut off: it waits.
        room = 0 if failed else min(room, PREVIEW_ROOM)
    return Placement(
        first=large and not failed,
        room=max(0, min(room, RESULT_LIMIT - size) - 1),
        drop_structured="structuredContent" in result,
        data=data,
        alone=not content and data is None,
    )


def _carried(structured: Any, texts: list[str]) -> bool:
    """Say whether the text blocks already hold the structured data.

    Servers repeat it as one block of JSON, or, when it is `{"result": value}`, as the bare value or one block an item.
    """
    values = [structured]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        values.append(structured["result"])
    for value in values:
        if any(_says(text, value) for text in texts):
            return True
        itemwise = isinstance(value, list) and len(value) == len(texts)
        if itemwise and all(_says(text, item) for text, item in zip(texts, value, strict=True)):
            return True
    return False


def _says(text: str, value: Any) -> bool:
    if isinstance(value, str) and text == value:
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def text_block(text: str) -> dict[str, Any]:
    """Return a content block of plain text."""
    return {"type": "text", "text": text}


def add_notice(result: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a copy of a tools/call result with the notice as one text block where the model reads it.

    Blocks, `isError`, `_meta` and unknown fields stay as they are; `structuredContent` goes (its data stays, as text).
    A result without a list of content blocks comes back unchanged.
    """
    placement = place(result)
    if placement is None:
        return result
    content = list(result["content"])
    if placement.data is not None:
        content.append(text_block(placement.data))
    content.insert(0 if placement.first else len(content), placement.block(text))
    changed = {key: value for key, value in result.items() if key != "structuredContent"}
    changed["content"] = content
    return changed
