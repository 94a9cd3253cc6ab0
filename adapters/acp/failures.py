"""What agents put in place of an ordinary result, as the error of a provider.

The protocol has no word for most of it. An agent answers a prompt with a JSON-RPC error, with a stop reason, or with an
ordinary end after a remark in the answer's text, as codex-acp does.
"""

from __future__ import annotations

import json
from typing import Any

from adapters.acp.client import CallFailed
from adapters.base import Outcome
from adapters.provider_errors import ProviderError, read_error, sentence

Json = dict[str, Any]
AUTH_REQUIRED = -32000
NOT_FOUND = -32002

CAPABILITIES: Json = {
    # We read, write and run nothing for the agent: it lives where its files are.
    "fs": {"readTextFile": False, "writeTextFile": False},
    "terminal": False,
}
"""What we say we can do.

codex-acp would report typed failures to an editor of JetBrains'; but that costs two more requests to the model, for a
title and for what the user might type next, and the output of commands.
"""
MARKING = frozenset({"@agentclientprotocol/codex-acp"})
"""Agents, by the name they give themselves, that mark the model's words with an id (`updates.MarkedLog`)."""

_WARNING = "Warning: "
_STOPS = {
    "refusal": (Outcome.REFUSED, "The model refused to answer."),
    "max_tokens": (Outcome.CONTEXT_WINDOW, "The model's token limit is reached."),
}


def of_error(error: CallFailed) -> ProviderError:
    """Read a JSON-RPC error that answered a prompt."""
    said = f"{error.message} {_details(error.data)}".strip()
    if error.code == AUTH_REQUIRED:
        return ProviderError(Outcome.AUTH, sentence(said) or "The agent wants a login.")
    # The kind of the error, where an agent adds one, is for the reading and not for a person.
    found = read_error(f"{said} {json.dumps(error.data)}")
    return ProviderError(found.outcome, sentence(said) or found.reason, found.retry_after)


def of_result(result: Json) -> ProviderError | None:
    """Read the failure in a prompt's result, None when there is none."""
    stop = _STOPS.get(str(result.get("stopReason")))
    return ProviderError(*stop) if stop is not None else None


def of_remark(remark: str) -> ProviderError | None:
    """Read the remark that a turn ended with, None when it is no error."""
    said = remark.strip()
    if not said or said.startswith(_WARNING):
        return None
    found = read_error(said)
    if found.outcome is Outcome.CRASHED and said.startswith("{"):
        # Codex hands on the body of a 400 as it is; of any other status it writes a sentence.
        return ProviderError(Outcome.REFUSED, found.reason)
    return found


def _details(data: object) -> str:
    if isinstance(data, dict):
        return next((data[key] for key in ("details", "message", "error") if isinstance(data.get(key), str)), "")
    return data if isinstance(data, str) else ""
