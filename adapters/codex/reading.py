"""What the notifications of an app-server say: text, tool calls, tokens, errors."""

from __future__ import annotations

import shlex
from typing import Any

from adapters.base import Outcome, Text, ToolActivity, Usage
from adapters.provider_errors import ProviderError, read_error

Json = dict[str, Any]

SUMMARY = 500  # characters of the end of a tool's output
_KINDS = {"commandExecution": "shell", "mcpToolCall": "mcp", "fileChange": "edit", "dynamicToolCall": "other"}
_OUTCOMES = {
    "contextWindowExceeded": Outcome.CONTEXT_WINDOW,
    "sessionBudgetExceeded": Outcome.QUOTA_SPENT,
    "usageLimitExceeded": Outcome.QUOTA_SPENT,
    "rateLimitExceeded": Outcome.RATE_LIMITED,
    "flexUnavailable": Outcome.OVERLOADED,
    "serverOverloaded": Outcome.OVERLOADED,
    "internalServerError": Outcome.OVERLOADED,
    "policyCapacityUnavailable": Outcome.OVERLOADED,
    "unauthorized": Outcome.AUTH,
    "badRequest": Outcome.REFUSED,
    "modelNotFound": Outcome.REFUSED,
    "cyberPolicy": Outcome.REFUSED,
    "bioPolicy": Outcome.REFUSED,
    "misalignmentPolicyViolation": Outcome.REFUSED,
    "inferenceHookDenied": Outcome.REFUSED,
}
"""`codexErrorInfo` of a turn's error, where its word alone decides."""


def item_of(item: Json, *, done: bool) -> Text | ToolActivity | None:
    """Return what an `item/started` or `item/completed` says of the turn, None for what concerns nobody."""
    kind = str(item.get("type"))
    if kind == "agentMessage" and done:
        return Text(str(item.get("text", "")))
    if kind not in _KINDS:
        return None
    ok = str(item.get("status")) == "completed" if done else None
    name, summary = _described(kind, item)
    return ToolActivity(str(item.get("id")), name, _KINDS[kind], summary, ok)


def _described(kind: str, item: Json) -> tuple[str, str]:
    if kind == "commandExecution":
        output = str(item.get("aggregatedOutput") or "")[-SUMMARY:]
        return "shell", f"{_command(str(item.get('command', '')))}\n{output}".strip()
    if kind == "mcpToolCall":
        result, error = item.get("result") or {}, item.get("error") or {}
        texts = [str(block.get("text", "")) for block in result.get("content") or [] if isinstance(block, dict)]
        said = "\n".join(texts) or str(error.get("message", ""))
        return f"mcp__{item.get('server')}__{item.get('tool')}", said[:SUMMARY]
    if kind == "fileChange":
        return "apply_patch", " ".join(str(change.get("path", "")) for change in item.get("changes") or [])[:SUMMARY]
    return str(item.get("tool")), ""


def _command(command: str) -> str:
    """Return the command without the shell that Codex runs it in."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else command


def error_of(error: Json) -> ProviderError:
    """Return what the error of a failed turn means."""
    text = str(error.get("message", ""))
    details = error.get("additionalDetails")
    if details and str(details) not in text:
        text = f"{text}: {details}"
    info = error.get("codexErrorInfo")
    if isinstance(info, dict) and info:
        (about,) = list(info.values())[:1]
        status = about.get("httpStatusCode") if isinstance(about, dict) else None
        read = read_error(text, status)
        # All of these say that the provider could not be reached, or stopped in the middle.
        return ProviderError(Outcome.OVERLOADED, read.reason, read.retry_after) if status is None else read
    read = read_error(text)
    known = _OUTCOMES.get(str(info))
    return read if known is None else ProviderError(known, read.reason, read.retry_after)


class Counter:
    """Tokens of a turn, from figures that Codex counts over the whole thread."""

    def __init__(self, total: Usage | None) -> None:
        self._total = total
        """What was counted so far; None when the thread was resumed and nobody knows."""
        self.turn = Usage()

    def begin(self) -> None:
        """A turn begins."""
        self.turn = Usage()

    def take(self, usage: Json) -> None:
        """Take in a `tokenUsage`."""
        total, last = _usage(usage.get("total") or {}), _usage(usage.get("last") or {})
        former = self._total if self._total is not None else _minus(total, last)
        # When the context window overflows Codex begins to count anew.
        if _fits(former, total):
            self.turn += _minus(total, former)
        self._total = total


def _usage(figures: Json) -> Usage:
    return Usage(
        input_tokens=int(figures.get("inputTokens", 0)),
        cached_tokens=int(figures.get("cachedInputTokens", 0)),
        output_tokens=int(figures.get("outputTokens", 0)),
        reasoning_tokens=int(figures.get("reasoningOutputTokens", 0)),
    )


def _minus(total: Usage, part: Usage) -> Usage:
    return Usage(
        total.input_tokens - part.input_tokens,
        total.cached_tokens - part.cached_tokens,
        total.output_tokens - part.output_tokens,
        total.reasoning_tokens - part.reasoning_tokens,
    )


def _fits(former: Usage, total: Usage) -> bool:
    return former.input_tokens <= total.input_tokens and former.output_tokens <= total.output_tokens
