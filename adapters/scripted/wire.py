"""The lines between the adapter and the scripted CLI: one JSON object a line, each with a `type`.

To the CLI: `turn` (prompt), `interrupt`. From it: `ready` (session), `error` (code, message; then it ends), and during
a turn `text` (text), `tool` (id, name, kind, summary, ok), and at its end `result` (outcome, reason, usage).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from adapters.base import Outcome, Text, ToolActivity, TurnEnd, TurnItem, Usage

SESSION_LOST = "session_lost"
SUMMARY_CAP = 2000  # characters of a tool's summary on the wire


def encode(item: TurnItem) -> dict[str, Any]:
    """Return the line of one item of a turn."""
    match item:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolActivity(call_id, name, kind, summary, ok):
            return {"type": "tool", "id": call_id, "name": name, "kind": kind, "summary": summary, "ok": ok}
        case TurnEnd(outcome, reason, _, usage):
            return {"type": "result", "outcome": str(outcome), "reason": reason, "usage": asdict(usage)}


def decode(line: str) -> TurnItem | None:
    """Return the item of one line, None for a line that is no item of a turn (noise on stdout included)."""
    data = parse(line)
    match data.get("type"):
        case "text":
            return Text(str(data.get("text", "")))
        case "tool":
            return ToolActivity(
                str(data.get("id", "")),
                str(data.get("name", "")),
                str(data.get("kind", "other")),
                str(data.get("summary", "")),
                data.get("ok"),
            )
        case "result":
            usage = data.get("usage") or {}
            return TurnEnd(Outcome(data["outcome"]), str(data.get("reason", "")), None, Usage(**usage))
    return None


def dump(data: dict[str, Any]) -> str:
    """Return an object as its line, with the newline."""
    return json.dumps(data, ensure_ascii=True) + "\n"


def parse(line: str) -> dict[str, Any]:
    """Return the object of a line, an empty one when it is none."""
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
