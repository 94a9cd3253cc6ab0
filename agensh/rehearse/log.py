"""What the load generators write down: one JSON array a line, the kind of the line first.

    ["call", worker, tool, due, began, ended, ok, [entries shown], [messages shown], more]
    ["entry", worker, marker, began, ended]            the board admitted it
    ["message", worker, marker, to, began, ended]      the chat took it
    ["merged", worker, ended]                          a pull request of it was merged
    ["failed", worker, tool, at, first words]          a call that was refused or not answered
    ["undone", worker, calls]                          calls that were due and never made

Workers are indices in the run's order, times are epoch seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO


class LoadLog:
    """Writes the lines of one generator; the file's own buffer makes few writes of many."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8", buffering=1 << 18)

    def add(self, *line: Any) -> None:
        """Add a line."""
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and what its result showed."""

    tool: str
    due: float
    began: float
    ended: float
    ok: bool
    entries: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A direct message that the chat took."""

    marker: str
    to: int
    began: float
    ended: float


@dataclass(slots=True)
class Load:
    """All that the generators wrote down."""

    calls: dict[int, list[Call]] = field(default_factory=dict)
    entries: dict[str, float] = field(default_factory=dict)
    """When the writer of an entry had the board's answer, by marker."""
    messages: list[SentMessage] = field(default_factory=list)
    merged: int = 0
    failures: list[str] = field(default_factory=list)
    undone: int = 0


def read_logs(paths: Iterator[Path] | list[Path]) -> Load:
    """Read the generators' files."""
    load = Load()
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for line in file:
                _take(load, json.loads(line))
    return load


def _take(load: Load, line: list[Any]) -> None:
    match line:
        case ["call", worker, tool, due, began, ended, ok, entries, messages, more]:
            call = Call(tool, due, began, ended, ok, tuple(entries), tuple(messages), more)
            load.calls.setdefault(worker, []).append(call)
        case ["entry", _, marker, _, ended]:
            load.entries[marker] = ended
        case ["message", _, marker, to, began, ended]:
            load.messages.append(SentMessage(marker, to, began, ended))
        case ["merged", _, _]:
            load.merged += 1
        case ["failed", worker, tool, _, words]:
            load.failures.append(f"{tool} of worker {worker + 1}: {words}")
        case ["undone", _, calls]:
            load.undone += calls
