"""Changes inside one line of JSON that leave every other byte as it is. Standard library only (the shim loads it)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecoder
from typing import Any, NamedTuple

from router.mcp.notices import NOTICE_ROOM, Placement, place, text_block

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = JSONDecoder()


class Member(NamedTuple):
    """One member of an object: its key and where it stands in the text."""

    key: str
    start: int
    """Where the key's quote stands."""
    value: int
    end: int


class Edit(NamedTuple):
    """Replace `text[start:end]`."""

    start: int
    end: int
    text: str


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def members(text: str, start: int) -> list[Member]:
    """Return the members of the object that begins at `start`; the text has to be valid JSON."""
    found = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(Member(key, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each element of the array that begins at `start`."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def member(text: str, start: int, key: str) -> Member | None:
    """Return the member that a parser takes for `key`: the last one of that name."""
    named = [found for found in members(text, start) if found.key == key]
    return named[-1] if named else None


def apply(text: str, edits: list[Edit]) -> str:
    """Return `text` with all edits, which do not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _without(found: list[Member], key: str) -> list[Edit]:
    """Return the edits that take the members called `key` out, each with one comma."""
    edits = []
    kept_before = False
    for number, current in enumerate(found):
        if current.key != key:
            kept_before = True
        elif kept_before:
            edits.append(Edit(found[number - 1].end, current.end, ""))
        elif number + 1 < len(found):
            edits.append(Edit(current.start, found[number + 1].start, ""))
        else:
            edits.append(Edit(current.start, current.end, ""))
    return edits


def notice_edits(text: str, start: int, placement: Placement, notice: str) -> list[Edit]:
    """Return the edits that put a notice into the tools/call result that begins at `start`."""
    found = members(text, start)
    content = [entry for entry in found if entry.key == "content"][-1]
    first = _skip(text, content.value + 1)
    empty = text[first] == "]"
    data = [] if placement.data is None else [json.dumps(text_block(placement.data))]
    block = json.dumps(placement.block(notice))
    edits = _without(found, "structuredContent") if placement.drop_structured else []
    if placement.first:
        edits.append(Edit(first, first, block + ("" if empty and not data else ",")))
    else:
        data.append(block)
    if data:
        end = content.end - 1
        edits.append(Edit(end, end, ("" if empty else ",") + ",".join(data)))
    return edits


def schema_edits(text: str, start: int) -> list[Edit]:
    """Return the edits that take `outputSchema` out of the tools/list result that begins at `start`."""
    tools = member(text, start, "tools")
    if tools is None or text[tools.value] != "[":
        return []
    edits = []
    for at, _ in elements(text, tools.value):
        if text[at] == "{":
            edits += _without(members(text, at), "outputSchema")
    return edits


def room_in(result: Any, *, room: int = NOTICE_ROOM) -> Placement | None:
    """Return where a notice may go in a parsed result; None when it cannot carry one."""
    if not isinstance(result, dict):
        return None
    placement = place(result, room=room)
    return placement if placement is not None and placement.room > 0 else None
