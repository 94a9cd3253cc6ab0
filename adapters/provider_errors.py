"""What a model provider's error is to the router: its outcome, a sentence, the wait it asked for.

Every CLI passes the provider's error on in its own words, some with the HTTP status, some without; this is the one
place that knows the words. Give it only what a CLI marks as an error: a model that talks about rate limits has none.

The order of the rules decides where an error fits two: a 429 that says that the money is gone is no rate limit, a 400
that says that the prompt is too long is no refusal. The words are those of the OpenAI, Azure OpenAI, Anthropic and
Gemini APIs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from adapters.base import Outcome, TurnEnd, Usage
from agensh.text import one_line

BUDGET_SPENT = "agensh_budget_spent"
"""The code in the gateway's refusal once a budget is used up."""

SENTENCE = 400  # characters of an error that a person is shown
LONGEST_WAIT = 3600.0  # seconds; a provider that asks for more is asked again after an hour


@dataclass(frozen=True, slots=True)
class ProviderError:
    """An error of a provider, read."""

    outcome: Outcome
    reason: str
    retry_after: float | None = None
    """Seconds, when the provider named a wait."""

    def turn_end(self, usage: Usage | None = None) -> TurnEnd:
        """Return the end of a turn that this error ended."""
        return TurnEnd(self.outcome, self.reason, self.retry_after, usage or Usage())


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_SPENT = _words(
    BUDGET_SPENT,
    r"insufficient[_ ]quota",
    # Not the bare word: Azure ends its ordinary 429 with a link to .../quotaincrease.
    r"exceeded your (?:current |monthly |premium request )?quota",
    r"quota (?:is |has been |was )?(?:exceeded|exhausted|spent|used up)",
    r"credit balance is too low",
    r"billing[_ ](?:hard[_ ])?(?:limit|error)",
    r"(?:usage|spending|spend|weekly|session|5-hour) limit (?:is |has been |was )?(?:reached|exceeded|hit)",
    r"(?:reached|hit|exceeded) (?:your|the) (?:specified )?(?:(?:api )?usage|spending|weekly|session) limit",
    r"out of (?:credits|extra usage)",
    r"payment required",
)
_CONTEXT = _words(
    r"context[_ ]length[_ ]exceeded",
    r"context[_ ]window[_ ]exceeded",
    r"maximum context length",
    r"exceed\w* (?:the |its )?(?:model'?s? )?(?:maximum )?(?:context|prompt)",
    r"prompt is too long",
    r"input is too long",
    r"ran out of room in the (?:model'?s )?context window",
    r"max_prompt_tokens_exceeded",
    r"request_too_large",
    r"context window (?:is )?(?:full|exceeded)",
    r"reached (?:its|the) context window",
    r"prompt token count of \d+ exceeds",
)
_AUTH = _words(
    r"authentication[_ ](?:error|required|failed)",
    r"permission_error",
    r"(?:invalid|incorrect|missing|expired|revoked|no)[ _](?:x-)?api[ _-]?key",
    r"invalid (?:bearer |access |auth\w* )?token",
    r"token (?:has |is )?(?:expired|revoked)",
    r"not logged in",
    r"please (?:run )?/login",
    r"\bunauthori[sz]ed\b",
    r"\bforbidden\b",
    r"access denied due to invalid subscription key",
)
_LIMITED = _words(r"rate[_ -]?limit", r"too many requests", r"resource[_ ]exhausted", r"throttl")
_OVERLOADED = _words(
    r"overloaded",
    r"(?:internal )?server[_ ]error",
    r"api_error",
    r"bad gateway",
    r"service (?:is )?(?:temporarily )?unavailable",
    r"gateway time-?out",
    r"high demand",
    r"time[d-]?[ -]?out",
    r"connection (?:error|closed|reset|refused|terminated|lost|failed)",
    r"(?:unable|failed) to connect",
    r"stream (?:disconnected|closed|ended|error)",
    r"(?:error|response|stream)\b.{0,40}\bstall",
    r"socket (?:hang up|connection)",
    r"fetch failed",
    r"network error",
    r"premature(?:ly)? (?:close|end)",
    r"incomplete (?:response|message|chunked|stream)",
    r"error sending request",
    r"\bE(?:CONNRE(?:SET|FUSED)|PIPE|TIMEDOUT|AI_AGAIN)\b",
)
_REFUSED = _words(
    r"invalid[_ ]request",
    r"\bbad request\b",
    r"content[_ ](?:filter|policy|management)",
    r"usage polic",
    r"\brefus(?:al|ed)\b",
    r"flagged",
    r"(?:model|deployment)\b.{0,80}(?:does not exist|not found|not available|may not exist|not supported)",
    r"model[_ ]not[_ ]found",
    r"not_found_error",
)

# A status as CLIs write it: "API Error: 429 {…}", "unexpected status 401 Unauthorized", "HTTP 503", "(Status 400)".
_STATUS = re.compile(
    r"(?i:\bhttp(?:/\d(?:\.\d)?)?|\bstatus(?:[ _]?code)?|error|\bcode)[\s:=\"'(]{1,4}([45]\d\d)\b"
    r"|(?:^|[\s(])([45]\d\d)(?= (?:status code|[A-Z][a-z]+|\{))",
)
_WAIT = re.compile(
    r"(?:(?:retry|try again)[-_ ]*(?:after|in)|wait(?: for)?)[\"':= ]*(?:about )?(?P<first>\d+(?:\.\d+)?)\s*"
    r"(?P<unit>milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h)?"
    r"(?:\s*(?P<second>\d+(?:\.\d+)?)\s*s(?:ec(?:ond)?s?)?)?(?![a-z\d])",
    re.IGNORECASE,
)
_UNITS = {"mil": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}  # seconds, by how the unit's word begins


def read_error(text: str, status: int | None = None, retry_after: float | None = None) -> ProviderError:
    """Read an error that a CLI reported: its text and, where the CLI knows it, the provider's HTTP status.

    `retry_after` is the wait in seconds where the CLI passes it on; otherwise the text is searched for one. An error
    that fits nothing is CRASHED: it counts as a failure and is tried again.
    """
    wait = retry_after if retry_after is not None else wait_named_in(text)
    outcome = _outcome(text, status if status else status_named_in(text))
    return ProviderError(
        outcome, sentence(text) or f"The provider answered {status or 'with an error'}.", _bounded(wait)
    )


def status_named_in(text: str) -> int | None:
    """Return the HTTP status of an error that a text names, None when it names none."""
    found = _STATUS.search(text)
    return int(found[1] or found[2]) if found else None


def wait_named_in(text: str) -> float | None:
    """Return the seconds that a text asks to wait, None when it asks for none."""
    found = _WAIT.search(text)
    if found is None:
        return None
    unit = (found["unit"] or "s").lower()
    factor = next(factor for begins, factor in _UNITS.items() if unit.startswith(begins))
    return float(found["first"]) * factor + float(found["second"] or 0)


def sentence(text: str) -> str:
    """Return what an error says to a person: the message inside its JSON body, on one line, cut to 400 characters."""
    before, brace, rest = text.partition("{")
    message = _message(brace + rest) if brace else ""
    return one_line(f"{before} {message}" if message else text, SENTENCE)


def _message(body: str) -> str:
    try:
        data, _ = json.JSONDecoder().raw_decode(body)
    except ValueError:
        return ""
    error = data.get("error", data)
    found = error.get("message", "") if isinstance(error, dict) else error
    return found if isinstance(found, str) else ""


def _outcome(text: str, status: int | None) -> Outcome:
    if status == 402 or _SPENT.search(text):
        return Outcome.QUOTA_SPENT
    # "Request too large for … tokens per min" is a 429: a limit of rate, not of the window.
    if status == 413 or (status in (None, 400, 422) and _CONTEXT.search(text)):
        return Outcome.CONTEXT_WINDOW
    if status is not None:
        return _outcome_of_status(status)
    for words, outcome in (
        (_LIMITED, Outcome.RATE_LIMITED),
        (_AUTH, Outcome.AUTH),
        # "Connection refused" is no refusal.
        (_OVERLOADED, Outcome.OVERLOADED),
        (_REFUSED, Outcome.REFUSED),
    ):
        if words.search(text):
            return outcome
    return Outcome.CRASHED


def _outcome_of_status(status: int) -> Outcome:
    match status:
        case 401 | 403 | 407:
            return Outcome.AUTH
        case 429:
            return Outcome.RATE_LIMITED
        case 408 | 425:
            return Outcome.OVERLOADED
        case _ if status >= 500:
            return Outcome.OVERLOADED
    return Outcome.REFUSED


def _bounded(wait: float | None) -> float | None:
    return None if wait is None or wait < 0 else min(wait, LONGEST_WAIT)
