"""What the end of a turn of Claude Code is to the router.

The CLI reports a provider's error as the text of a "success" with a flag beside it, and goes on living; only a protocol
that is broken, or a process that is gone, is a crash.
"""

from __future__ import annotations

from adapters.base import Outcome, TurnEnd
from adapters.claude_code.wire import Result, Retry
from adapters.provider_errors import read_error, sentence

OWN_PAUSE = (
    2.0  # seconds; the CLI's own first pause is below 1.3 (seen), so a longer one is what the provider asked for
)

_CONTEXT = frozenset({"prompt_too_long", "blocking_limit", "rapid_refill_breaker"})
_CATEGORIES = {
    "authentication_failed": Outcome.AUTH,
    "oauth_org_not_allowed": Outcome.AUTH,
    "account_on_hold": Outcome.AUTH,
    "verification_required": Outcome.AUTH,
    "cloud_credential_error": Outcome.AUTH,
    "billing_error": Outcome.QUOTA_SPENT,
    "rate_limit": Outcome.RATE_LIMITED,
    "overloaded": Outcome.OVERLOADED,
    "server_error": Outcome.OVERLOADED,
    "invalid_request": Outcome.REFUSED,
    "model_not_found": Outcome.REFUSED,
    "max_output_tokens": Outcome.REFUSED,
}


def turn_end(result: Result, *, category: str, retry: Retry | None, worked: bool, interrupted: bool) -> TurnEnd:
    """Return how a turn ended.

    `category` is the CLI's word for the provider's error, `retry` the last time it waited for the provider; `worked`
    says that there was a text or a call, `interrupted` that we asked for the end.
    """
    if interrupted and (result.is_error or not worked):
        return TurnEnd(Outcome.INTERRUPTED, "The turn was interrupted.", usage=result.usage)
    if result.terminal in _CONTEXT:
        return TurnEnd(Outcome.CONTEXT_WINDOW, sentence(result.text) or "The context is full.", usage=result.usage)
    if result.stop == "refusal":
        return TurnEnd(Outcome.REFUSED, sentence(result.text) or "The model refused to answer.", usage=result.usage)
    if not result.is_error:
        if worked:
            return TurnEnd(Outcome.COMPLETED, usage=result.usage)
        return TurnEnd(Outcome.NO_WORK, "The turn ended with neither a text nor a tool call.", usage=result.usage)
    if result.terminal == "api_error" or category:
        return _provider_end(result, category, retry)
    reason = sentence(result.text) or f"Claude Code ended the turn with {result.subtype} ({result.terminal})."
    return TurnEnd(Outcome.CRASHED, reason, usage=result.usage)


def _provider_end(result: Result, category: str, retry: Retry | None) -> TurnEnd:
    asked = retry.seconds if retry is not None and retry.seconds >= OWN_PAUSE else None
    # The kind is read too: it may be all that tells a spent budget from another refusal.
    outcome = read_error(f"{result.text} {result.kind}", result.status).outcome
    if outcome is Outcome.CRASHED:
        outcome = _CATEGORIES.get(category, outcome)
    wait = read_error(result.text, result.status, asked).retry_after
    return TurnEnd(outcome, sentence(result.text) or f"The provider's error is {result.kind}.", wait, result.usage)


def asked_to_wait(retry: Retry, result: Result | None) -> TurnEnd:
    """Return the end of a turn that was ended because the provider wants a long pause."""
    status = f"The provider answered {retry.status or retry.category} and wants a pause."
    found = read_error(status, retry.status, retry.seconds)
    outcome = _CATEGORIES.get(retry.category, found.outcome) if retry.status is None else found.outcome
    end = found.turn_end(result.usage if result is not None else None)
    return TurnEnd(outcome, end.reason, end.retry_after, end.usage)
