"""What every test of `tests/chaos/` shares: how much of it runs, and how it looks for the line that names a fault."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

LONG = os.environ.get("AGENSH_CHAOS") == "long"
"""Set by `make chaos`; without it the suite is the short one of `make test`."""


def either(short: T, long: T) -> T:
    """Return `long` in `make chaos`, else `short`: how many rounds, workers, moments a test takes."""
    return long if LONG else short


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    level: str
    logger: str
    message: str
    fields: dict[str, Any]


def lines_of(text: str) -> list[Line]:
    """Return the lines of a process that logs as our processes do; what is not JSON is a line with that message."""
    return [_line(raw) for raw in text.splitlines() if raw.strip()]


def _line(raw: str) -> Line:
    try:
        value = json.loads(raw)
    except ValueError:
        return Line("", "", raw, {})
    if not isinstance(value, dict):
        return Line("", "", raw, {})
    return Line(str(value.get("level", "")), str(value.get("logger", "")), str(value.get("message", "")), value)


def records_of(records: Iterable[logging.LogRecord]) -> list[Line]:
    """Return what pytest's `caplog.records` holds as lines."""
    return [Line(record.levelname.lower(), record.name, record.getMessage(), dict(vars(record))) for record in records]


def named_once(lines: Iterable[Line], *words: str) -> Line:
    """Return the one line whose message or error has all `words`; AssertionError for none and for more than one."""
    every = list(lines)
    found = [line for line in every if all(word in _told(line) for word in words)]
    shown = "\n".join(f"{line.level}: {_told(line)[:300]}" for line in every if line.level not in {"debug", "info"})
    assert len(found) == 1, f"{len(found)} lines name {' + '.join(words)}; the log's warnings:\n{shown}"
    return found[0]


def _told(line: Line) -> str:
    return f"{line.message} {line.fields.get('error', '')}"
