"""What an agent reports during a turn (`session/update`), as items of the turn.

Agents differ in where they put things: a tool's name is its title or a field, an MCP call is `server-tool`,
`mcp.server.tool` or `mcp__server__tool`, the output of a command is text, raw output or in `_meta`.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field, replace
from typing import Any

from adapters.base import Text, ToolActivity, TurnItem, Usage

Json = dict[str, Any]
SERVER = "agensh"
"""Our MCP server's name."""
LINGER = 120.0  # seconds after the last words; a model may still be writing the arguments of a long call
SUMMARY_CAP = 2000  # characters of a tool call's summary
_OURS = re.compile(rf"(?:mcp(?:__|\.|/))?{SERVER}(?:__|[-./: ])(?P<tool>\w+)", re.IGNORECASE)
_EDITS = frozenset({"edit", "delete", "move"})
_PROGRESS = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"})
_ENDED = {"completed": True, "failed": False, "cancelled": False}


@dataclass
class Log:
    """One turn: what was said last, which tools run. `item` takes an update and returns what the router should see."""

    chunks: list[str] = field(default_factory=list)
    """What the agent says, since the last tool call."""
    worked: bool = False
    """There was a text or a tool call."""
    ours: bool = False
    """A tool of ours gave a result, so the agent is connected to our endpoint."""
    background: bool = False
    """A command was left running that the agent waits for, and that a cancelled turn leaves alone."""
    _running: dict[str, ToolActivity] = field(default_factory=dict)
    _facts: dict[str, Json] = field(default_factory=dict)
    _outputs: dict[str, str] = field(default_factory=dict)
    _calls: set[str] = field(default_factory=set)
    _moved: float = field(default_factory=time.monotonic)

    def patience(self, stall: float) -> float | None:
        """Return how long the turn may stand still from now on, in seconds; None while a tool runs.

        `stall` is how long it may from the last text or call on: news of other kinds are no progress.
        """
        if self._running:
            return None
        return max(0.0, self._moved + (min(LINGER, stall) if self.lingering else stall) - time.monotonic())

    @property
    def lingering(self) -> bool:
        """All is said, as far as one can see, and the agent only waits for a command in the background."""
        return self.background and bool(self.chunks) and not self._running

    def items(self, update: Json) -> list[TurnItem]:
        """Return what an update adds to the turn."""
        if update.get("sessionUpdate") in _PROGRESS:
            self._moved = time.monotonic()
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self.say(_text(update.get("content")), str(update.get("messageId") or ""))
            case "tool_call":
                return [*self.said(), *self._call(update)]
            case "tool_call_update":
                return self._change(update)
        return []

    def say(self, chunk: str, message: str) -> None:
        """Take in a piece of what the agent says, and the id of the message that it belongs to where it has one."""
        del message
        self.chunks.append(chunk)

    def left_running(self, activity: ToolActivity) -> bool:
        """Say whether a call that has ended left a command running; where an agent waits for those."""
        del activity
        return False

    def said(self) -> list[TurnItem]:
        """Return what the agent has said since the last tool call, as one text."""
        text = "".join(self.chunks).strip()
        self.chunks.clear()
        if not text:
            return []
        self.worked = True
        return [Text(text)]

    def _call(self, update: Json) -> list[TurnItem]:
        call_id = str(update.get("toolCallId", ""))
        if not call_id or call_id in self._calls:
            return self._change(update)
        self.worked = True
        self._calls.add(call_id)
        self._facts[call_id] = update
        activity = self._running[call_id] = _activity(call_id, update)
        return [activity, *self._change(update)]

    def _change(self, update: Json) -> list[TurnItem]:
        call_id = str(update.get("toolCallId", ""))
        activity = self._running.get(call_id)
        # What an agent that was resumed reports of calls before the turn is none of its.
        ok = _ENDED.get(str(update.get("status")))
        if activity is None:
            return []
        # Some name the command, or the tool, when they have already said that there is one.
        self._facts[call_id] |= {key: update[key] for key in ("title", "kind", "rawInput") if update.get(key)}
        activity = self._running[call_id] = _activity(call_id, self._facts[call_id])
        self._outputs[call_id] = output = _output(update, self._outputs.get(call_id, ""))[-SUMMARY_CAP:]
        if ok is None:
            return []
        del self._running[call_id], self._outputs[call_id], self._facts[call_id]
        if activity.kind == "mcp" and ok:
            self.ours = self.ours or SERVER in activity.name
        code = _exit_code(update)
        if activity.kind == "shell" and code is not None:
            ok = code == 0
        summary = f"{activity.summary}\n{output.strip()}".strip()
        activity = replace(activity, summary=summary, ok=ok)
        self.background = self.background or self.left_running(activity)
        return [activity]


@dataclass
class MarkedLog(Log):
    """A turn of an agent that gives the model's messages ids: what has none is a remark of its own."""

    remark: str = ""
    """The last one, if nothing of the model's followed it."""

    def say(self, chunk: str, message: str) -> None:
        """See Log.say."""
        self.remark = "" if message else chunk
        if message:
            super().say(chunk, message)


def usage_of(result: Json) -> Usage | None:
    """Return the tokens that a prompt's result tells of, None when it tells of none.

    Agents count what came from the cache as part of the input or beside it; the total tells which.
    """
    usage = result.get("usage")
    if not isinstance(usage, dict):
        return None
    count = {name: value for name, value in usage.items() if isinstance(value, int)}
    output = count.get("outputTokens", 0)
    total = count.get("totalTokens", 0)
    return Usage(
        input_tokens=total - output if total > output else count.get("inputTokens", 0),
        cached_tokens=count.get("cachedReadTokens", 0),
        output_tokens=output,
        reasoning_tokens=count.get("thoughtTokens", 0),
    )


def _activity(call_id: str, update: Json) -> ToolActivity:
    title, kind = str(update.get("title", "")), str(update.get("kind", ""))
    raw = update.get("rawInput")
    raw = raw if isinstance(raw, dict) else {}
    ours = _OURS.fullmatch(title) or _OURS.fullmatch(str(update.get("name", "")))
    if ours or (raw.get("server") == SERVER and "tool" in raw):
        tool = ours["tool"] if ours else str(raw["tool"])
        return ToolActivity(call_id, f"{SERVER}-{tool}", "mcp")
    if kind == "execute":
        command = raw.get("command", title)
        line = " ".join(map(str, command)) if isinstance(command, list) else str(command)
        return ToolActivity(call_id, "shell", "shell", f"$ {line[:SUMMARY_CAP]}")
    name = str(update.get("name") or title or kind or "tool")
    return ToolActivity(call_id, name[:100], "edit" if kind in _EDITS else "other", title[:SUMMARY_CAP])


def _output(update: Json, before: str) -> str:
    """Return the output so far: an update holds all of it, or the next piece."""
    texts = [_text(block.get("content")) for block in _objects(update.get("content"))]
    if any(texts):
        return "\n".join(texts)
    raw = update.get("rawOutput")
    if isinstance(raw, dict):
        for key in ("content", "message", "formatted_output", "output"):
            if isinstance(raw.get(key), str):
                return str(raw[key])
        return json.dumps(raw, ensure_ascii=False)
    if isinstance(raw, str):
        return raw
    piece = _meta(update, "terminal_output_delta").get("data")
    return f"{before}{piece}" if isinstance(piece, str) else before


def _exit_code(update: Json) -> int | None:
    raw = update.get("rawOutput")
    parts = _objects(raw.get("contents")) if isinstance(raw, dict) else []
    found = [*(part.get("exitCode") for part in parts), _meta(update, "terminal_exit").get("exit_code")]
    return next((code for code in found if isinstance(code, int)), None)


def _meta(update: Json, key: str) -> Json:
    meta = update.get("_meta")
    value = meta.get(key) if isinstance(meta, dict) else None
    return value if isinstance(value, dict) else {}


def _text(content: object) -> str:
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
