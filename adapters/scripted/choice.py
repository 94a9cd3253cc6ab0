"""Which piece of work comes next. Pure: the answer follows from what the worker knows and its seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from adapters.scripted.playbook import Area, Playbook
from adapters.scripted.reading import BoardLine, area_of
from agensh.entries import EntryType

AUDITS = 2  # clean audits by different workers after which a tool is left alone
IDLE_AUDITS = 4  # the same, for a worker that has nothing else to do


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the choice rests on."""

    me: str
    areas: Sequence[Area]
    core_on_main: bool
    on_main: Collection[str]
    """Tools in main's registry."""
    claims: Sequence[BoardLine]
    """Active CLAIMs."""
    audits: Mapping[str, int]
    """Clean audits of each tool, by anybody."""
    mine: Collection[str] = ()
    """Tools I have audited."""
    stuck: Collection[str] = ()
    """Tools I cannot bring further."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of work: `core`, `area` or `audit`, and its tool."""

    kind: str
    tool: str


def choose(known: Knowledge, seed: str, *, audits: int = AUDITS) -> Piece | None:
    """Return the next piece, None when there is none: the core first, then a free area, then an audit."""
    taken = {area for line in known.claims if (area := area_of(line.content)) is not None}
    chance = random.Random(seed)
    if not known.core_on_main and ("core", "core") not in taken:
        return Piece("core", "core")
    free = [
        area.tool
        for area in known.areas
        if area.tool not in known.on_main and ("area", area.tool) not in taken and area.tool not in known.stuck
    ]
    if free:
        return Piece("area", chance.choice(free))
    busy = {tool for _, tool in taken}
    open_ = [
        area.tool
        for area in known.areas
        if area.tool in known.on_main
        and area.tool not in busy
        and area.tool not in known.mine
        and area.tool not in known.stuck
        and known.audits.get(area.tool, 0) < audits
    ]
    if not open_:
        return None
    fewest = min(known.audits.get(tool, 0) for tool in open_)
    return Piece("audit", chance.choice([tool for tool in open_ if known.audits.get(tool, 0) == fewest]))


def audits_of(lines: Iterable[BoardLine]) -> dict[str, int]:
    """Count the clean audits that FACTs of the form `audit wc: …` report."""
    counts: dict[str, int] = {}
    for line in lines:
        area = area_of(line.content)
        if line.type is EntryType.FACT and area is not None and area[0] == "audit":
            counts[area[1]] = counts.get(area[1], 0) + 1
    return counts


def heeded(playbook: Playbook, tool: str, revision: int, failures: Collection[str]) -> int:
    """Return the revision to go on with: past every assumption that a FAIL on the board has already refuted."""
    known = [
        defect.fixed_in for defect in playbook.defects(tool, revision) if failure_text(tool, defect.summary) in failures
    ]
    return max(known, default=revision)


def failure_text(tool: str, summary: str) -> str:
    """Return the content of a FAIL about a tool."""
    return f"{tool}: {summary}"[:100]
