"""What Copilot says for itself in place of an error: pieces of the answer that are not the model's.

Each is one chunk that begins with `Info: `, `Warning: ` or `Error: `. The last chunk of a turn that ended with an
error is the error; the answer has no usage then, where the version reports usage at all.
"""

from __future__ import annotations

import re

from adapters.base import Outcome
from adapters.provider_errors import ProviderError, read_error, sentence

REMARK = re.compile(
    r"Info: (?:Request failed|Response was interrupted|The conversation exceeded|Operation cancelled by user)"
    r"|Warning: \d+ tool call"
)
RETRYING = "Info: Response was interrupted"
"""The answer so far is void: it begins anew."""
IN_BACKGROUND = "<command started in background with shellId: "
"""The result of a shell command that goes on."""

_ERROR = "Error: "
_STATUS = re.compile(r"(\d{3}) ")
_LAST = "Last error: "
_TOO_LONG = "rejected the prompt as too long"
_NOTHING = "No response was returned"
_UNREACHABLE = "Could not connect"


def is_error(chunk: str) -> bool:
    """Say whether a turn that ended with this chunk ended with an error."""
    return chunk.startswith(_ERROR)


def read(chunk: str) -> ProviderError:
    """Read the chunk of an error."""
    said = chunk.removeprefix(_ERROR)
    if _TOO_LONG in said:
        return ProviderError(Outcome.CONTEXT_WINDOW, sentence(said))
    if said.startswith(_NOTHING):
        return ProviderError(Outcome.NO_WORK, sentence(said))
    if said.startswith(_UNREACHABLE):
        return ProviderError(Outcome.OVERLOADED, sentence(said))
    _, retried, last = said.partition(_LAST)
    cause = last if retried else said
    status = _STATUS.match(cause)
    found = read_error(cause, int(status[1]) if status else None)
    if retried and found.outcome is Outcome.CRASHED:
        # It repeats only what it takes for the provider's trouble: a stream that broke, no connection.
        return ProviderError(Outcome.OVERLOADED, sentence(said), found.retry_after)
    return ProviderError(found.outcome, found.reason, found.retry_after)
