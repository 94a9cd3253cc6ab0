"""Logs of Agensh's processes: one JSON object a line on stderr, never on stdout (stdout belongs to protocols).

Call sites log one line a transition: `log.info("event queued", extra={"worker": …, "event_id": …})`. Every `extra` key
becomes a key of the line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import IO

from agensh.clock import iso

# What a terminal obeys, what ends a line for some readers, and what cannot be encoded; JSON escapes the rest itself.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One line of JSON a record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key != "color_message"}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _UNSAFE.sub(_escaped, json.dumps(line, default=str, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def set_up_logging(level: str = "info", stream: IO[str] | None = None) -> None:
    """Send all logs of this process to `stream` (stderr by default) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for noisy in (
        "httpx",
        "httpcore",
        "httpx2",
        "httpcore2",
        "uvicorn.access",
        "websockets",
        "mcp",
        "aiosqlite",
        "alembic",
    ):
        logging.getLogger(noisy).setLevel(logging.WARNING)
