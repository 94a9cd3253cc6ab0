"""The lines of Claude Code's stream-json protocol, read and written. No I/O.

A line holds one JSON object. What matters of it becomes an item here; what an unknown version adds is passed over.
Seen with 2.1.332; the shapes are those of the CLI's own declarations (`SDKMessage`, `SDKControlRequest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from adapters.base import Text, ToolActivity, Usage

Json: TypeAlias = dict[str, object]

SUMMARY = 2000  # characters of a call's summary: the beginning of what was asked, the end of what came back


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn began (`system/init`, one a turn)."""

    servers: Mapping[str, str]
    """State of each MCP server: connected, failed, pending, needs-auth, disabled."""
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """The CLI will ask the provider again (`system/api_retry`)."""

    seconds: float
    status: int | None
    category: str


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a turn."""

    is_error: bool
    subtype: str
    terminal: str
    """`terminal_reason`: completed, api_error, aborted_tools, prompt_too_long, …"""
    stop: str
    """`stop_reason` of the last answer: end_turn, refusal, …"""
    text: str
    status: int | None
    kind: str
    """What the CLI and the provider call the error, such as `stream_idle_timeout`, `overloaded_error`."""
    by_itself: bool
    """Nobody asked for this turn: the end of a background task woke the CLI."""
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The provider's error as a message of its own, just before the result that repeats its text."""

    category: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The CLI asks us (`control_request`)."""

    request_id: str
    subtype: str
    callback: str
    """Which hook runs, when it is one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The CLI answers one of our requests."""

    request_id: str
    error: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A prompt that was sent was taken back before its turn began (`command_lifecycle`); no result will come."""

    message_id: str


Item: TypeAlias = Text | ToolActivity | Begun | Retry | Failed | Result | Asked | Answered | Dropped


@dataclass
class Reader:
    """Reads the lines of one process; it remembers the calls that run, for a result does not repeat their names."""

    _running: dict[str, ToolActivity] = field(default_factory=dict)

    def read(self, line: str) -> list[Item]:
        """Return what a line says; nothing when it is no JSON object or says nothing of use."""
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            return []
        if not isinstance(data, dict):
            return []
        match data.get("type"):
            case "assistant":
                return list(self._assistant(data))
            case "user":
                return list(self._results(data))
            case "system":
                return _system(data)
            case "result":
                self._running.clear()
                return [_result(data)]
            case "command_lifecycle" if data.get("state") in ("cancelled", "discarded", "refused"):
                return [Dropped(_text(data.get("command_uuid")))]
            case "control_request":
                request = _object(data.get("request"))
                subtype, callback = _text(request.get("subtype")), _text(request.get("callback_id"))
                return [Asked(_text(data.get("request_id")), subtype, callback)]
            case "control_response":
                response = _object(data.get("response"))
                error = _text(response.get("error")) or "refused" if response.get("subtype") == "error" else ""
                return [Answered(_text(response.get("request_id")), error)]
        return []

    def _assistant(self, data: Json) -> Iterator[Item]:
        if data.get("is_api_error_message") or data.get("error"):
            # The provider's words, not the model's. What a subagent met with is not the end of the turn.
            if data.get("parent_tool_use_id") is None:
                yield Failed(_text(data.get("error")))
            return
        for block in _blocks(data):
            if block.get("type") == "text" and data.get("parent_tool_use_id") is None:
                if text := _text(block.get("text")):
                    yield Text(text)
            elif block.get("type") == "tool_use":
                call = _call(block)
                self._running[call.call_id] = call
                yield call

    def _results(self, data: Json) -> Iterator[Item]:
        for block in _blocks(data):
            if block.get("type") != "tool_result":
                continue
            call = self._running.pop(_text(block.get("tool_use_id")), None)
            if call is None:
                continue
            said = _plain(block.get("content"))
            room = max(0, SUMMARY - len(call.summary))
            summary = f"{call.summary}\n{said[-room:] if room else ''}".strip()
            yield ToolActivity(call.call_id, call.name, call.kind, summary, ok=not block.get("is_error"))


def _call(block: Json) -> ToolActivity:
    name, given = _text(block.get("name")), _object(block.get("input"))
    kind = "other"
    summary = json.dumps(given, ensure_ascii=False)
    if name == "Bash":
        kind, summary = "shell", f"$ {_text(given.get('command'))}"
    elif name.startswith("mcp__"):
        kind = "mcp"
        name = name.split("__", 2)[-1]
    elif name in ("Edit", "Write", "NotebookEdit", "MultiEdit"):
        kind = "edit"
        summary = _text(given.get("file_path") or given.get("notebook_path"))
    return ToolActivity(_text(block.get("id")), name, kind, summary[: SUMMARY // 2])


def _system(data: Json) -> list[Item]:
    match data.get("subtype"):
        case "init":
            servers = {
                _text(row.get("name")): _text(row.get("status")) for row in map(_object, _list(data.get("mcp_servers")))
            }
            return [Begun(servers, tuple(_text(tool) for tool in _list(data.get("tools"))))]
        case "api_retry":
            seconds = _number(data.get("retry_delay_ms")) / 1000
            return [Retry(seconds, _status(data.get("error_status")), _text(data.get("error")))]
    return []


def _result(data: Json) -> Result:
    errors = [_text(error) for error in _list(data.get("errors"))]
    origin = _object(data.get("origin"))
    kinds = [_text(data.get(key)) for key in ("api_error", "api_error_code", "api_error_type")]
    return Result(
        is_error=bool(data.get("is_error")),
        subtype=_text(data.get("subtype")),
        terminal=_text(data.get("terminal_reason")),
        stop=_text(data.get("stop_reason")),
        text=_text(data.get("result")) or "; ".join(errors),
        status=_status(data.get("api_error_status")),
        kind=" ".join(kind for kind in kinds if kind),
        by_itself=origin.get("kind") == "task-notification",
        usage=_usage(data),
    )


def _usage(data: Json) -> Usage:
    """Return the tokens of a turn, subagents and questions aside included.

    On this wire the cached tokens, read or written, are no part of the input; in `Usage` they are.
    """
    models = _object(data.get("model_usage_since_last_result"))
    if not models:
        used = _object(data.get("usage"))
        cached = _number(used.get("cache_read_input_tokens"))
        fresh = _number(used.get("input_tokens")) + _number(used.get("cache_creation_input_tokens"))
        return Usage(int(fresh + cached), int(cached), int(_number(used.get("output_tokens"))))
    total = Usage()
    for each in map(_object, models.values()):
        cached = _number(each.get("cacheReadInputTokens"))
        fresh = _number(each.get("inputTokens")) + _number(each.get("cacheCreationInputTokens"))
        total += Usage(
            int(fresh + cached),
            int(cached),
            int(_number(each.get("outputTokens"))),
            int(_number(each.get("thinkingTokens"))),
            _number(each.get("costUSD")),
        )
    return total


def user_line(prompt: str, message_id: str) -> str:
    """Return the line that sends a prompt."""
    message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    return json.dumps(
        {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "", "uuid": message_id}
    )


def request_line(request_id: str, subtype: str, fields: Mapping[str, object]) -> str:
    """Return the line of a control request."""
    return json.dumps({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})


def answer_line(request_id: str, answer: Mapping[str, object]) -> str:
    """Return the line that answers what the CLI asked."""
    return json.dumps(
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": request_id, "response": dict(answer)},
        }
    )


def refusal_line(request_id: str, reason: str) -> str:
    """Return the line that refuses what the CLI asked."""
    return json.dumps(
        {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": reason}}
    )


def hook_fields(events: Sequence[str]) -> Json:
    """Return the part of an initialize request that registers a callback, named like its event, for each event."""
    return {"hooks": {event: [{"matcher": "*", "hookCallbackIds": [event]}] for event in events}} if events else {}


def _blocks(data: Json) -> list[Json]:
    return [_object(block) for block in _list(_object(data.get("message")).get("content"))]


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_text(_object(block).get("text")) for block in _list(content))


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _status(value: object) -> int | None:
    return value if isinstance(value, int) and value else None
