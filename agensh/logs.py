"""Logs of Agensh's processes: one JSON object a line on stderr, never on stdout (stdout belongs to protocols).

Call sites log one line a transition: `log.info("event queued", extra={"worker": …, "event_id": …})`. Every `extra` key
becomes a key of the line.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import IO

from agensh.clock import iso

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
        return json.dumps(line, default=str, ensure_ascii=False)


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
