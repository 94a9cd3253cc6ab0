"""What agents put in place of an ordinary result, as the error of a provider.

The protocol has no word for most of it. An agent answers a prompt with a JSON-RPC error, with a stop reason, or, as
codex-acp does for a client that says it understands it, with a typed failure beside an ordinary stop reason.
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
    "_meta": {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}}},
}
"""What we say we can do; without the last line codex-acp puts errors into the text of the model's answer."""

_CATEGORIES = {
    "access": Outcome.AUTH,
    "connection": Outcome.OVERLOADED,
    "limit": Outcome.RATE_LIMITED,
    "service": Outcome.OVERLOADED,
    "request": Outcome.REFUSED,
}
_STOPS = {
    "refusal": (Outcome.REFUSED, "The model refused to answer."),
    "max_tokens": (Outcome.CONTEXT_WINDOW, "The model's token limit is reached."),
}


def of_error(error: CallFailed) -> ProviderError:
    """Read a JSON-RPC error that answered a prompt."""
    said = f"{error.message} {_words(error.data)}".strip()
    if error.code == AUTH_REQUIRED:
        return ProviderError(Outcome.AUTH, sentence(said) or "The agent wants a login.")
    return read_error(said)


def of_result(result: Json) -> ProviderError | None:
    """Read the failure in a prompt's result, None when there is none."""
    failure = _failure(result)
    if failure.get("severity") == "error":
        title = str(failure.get("title", ""))
        found = read_error(title)
        if found.outcome is not Outcome.CRASHED:
            return found
        # Codex hands on the body of a 400 as it is, of any other status it writes a sentence.
        outcome = Outcome.REFUSED if title.startswith("{") else _CATEGORIES.get(str(failure.get("category")))
        return ProviderError(outcome or found.outcome, found.reason, found.retry_after)
    if (stop := _STOPS.get(str(result.get("stopReason")))) is not None:
        return ProviderError(*stop)
    return None


def _failure(result: Json) -> Json:
    value: object = result
    for key in ("_meta", "jetbrains", "air", "sessionFailure"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _words(data: object) -> str:
    if isinstance(data, dict):
        for key in ("details", "message", "error"):
            if isinstance(data.get(key), str):
                return str(data[key])
    return data if isinstance(data, str) else "" if data is None else json.dumps(data)
