"""What a provider's error, in the words in which CLIs pass it on, is to the router."""

from __future__ import annotations

import pytest

from adapters.base import Outcome, Usage
from adapters.provider_errors import LONGEST_WAIT, SENTENCE, read_error, sentence, status_named_in, wait_named_in

ANTHROPIC = '{{"type":"error","error":{{"type":"{0}","message":"{1}"}},"request_id":"req_1"}}'
OPENAI = '{{"error":{{"message":"{1}","type":"{0}","param":null,"code":"{0}"}}}}'


@pytest.mark.parametrize(
    ("text", "status", "outcome"),
    [
        ("API Error: 429 " + ANTHROPIC.format("rate_limit_error", "slow down"), None, Outcome.RATE_LIMITED),
        ("API Error: " + ANTHROPIC.format("rate_limit_error", "slow down"), 429, Outcome.RATE_LIMITED),
        ("API Error: 529 " + ANTHROPIC.format("overloaded_error", "Overloaded"), None, Outcome.OVERLOADED),
        ("Repeated 529 Overloaded errors", None, Outcome.OVERLOADED),
        ("API Error: 500 " + ANTHROPIC.format("api_error", "Internal server error"), None, Outcome.OVERLOADED),
        ("Connection error.", None, Outcome.OVERLOADED),
        ("connection refused", None, Outcome.OVERLOADED),
        ("API Error: Response stalled mid-stream. The response above may be incomplete.", None, Outcome.OVERLOADED),
        ("stream disconnected before completion: stream closed before response.completed", None, Outcome.OVERLOADED),
        ("Request timed out.", None, Outcome.OVERLOADED),
        ("unexpected status 401 Unauthorized: Incorrect API key provided", None, Outcome.AUTH),
        ("Invalid API key · Please run /login", None, Outcome.AUTH),
        ("Authentication required", None, Outcome.AUTH),
        ("permission denied", 403, Outcome.AUTH),
        (
            "API Error: 402 " + ANTHROPIC.format("agensh_budget_spent", "The budget is spent."),
            None,
            Outcome.QUOTA_SPENT,
        ),
        (OPENAI.format("agensh_budget_spent", "The budget is spent."), None, Outcome.QUOTA_SPENT),
        ("no text", 402, Outcome.QUOTA_SPENT),
        (OPENAI.format("insufficient_quota", "You exceeded your current quota"), 429, Outcome.QUOTA_SPENT),
        ("Your credit balance is too low to access the Anthropic API.", 400, Outcome.QUOTA_SPENT),
        ("Claude usage limit reached. Your limit will reset at 3pm", 429, Outcome.QUOTA_SPENT),
        ("prompt is too long: 212345 tokens > 200000 maximum", 400, Outcome.CONTEXT_WINDOW),
        (OPENAI.format("context_length_exceeded", "Your input exceeds it"), 400, Outcome.CONTEXT_WINDOW),
        ("This model's maximum context length is 128000 tokens.", None, Outcome.CONTEXT_WINDOW),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 400, Outcome.CONTEXT_WINDOW),
        ("API Error: The model has reached its context window limit.", None, Outcome.CONTEXT_WINDOW),
        ("Request exceeds the maximum size", 413, Outcome.CONTEXT_WINDOW),
        ("API Error: 400 " + ANTHROPIC.format("invalid_request_error", "messages: empty"), None, Outcome.REFUSED),
        ("CAPIError: 400 400 status code (no body)", None, Outcome.REFUSED),
        ("The model `gpt-9` does not exist or you do not have access to it.", 404, Outcome.REFUSED),
        ("The response was filtered due to the prompt triggering the content management policy.", 400, Outcome.REFUSED),
        ("something nobody has seen", None, Outcome.CRASHED),
    ],
)
def test_an_error_is_read_by_its_status_and_its_words(text: str, status: int | None, outcome: Outcome) -> None:
    assert read_error(text, status).outcome is outcome


def test_a_rate_limit_that_mentions_a_quota_or_a_size_is_still_a_rate_limit() -> None:
    azure = (
        "Requests to the Responses operation have exceeded token rate limit of your current OpenAI S0 pricing tier. "
        "Please retry after 6 seconds. Please go here: https://aka.ms/oai/quotaincrease to increase the default."
    )
    found = read_error(azure, 429)
    assert (found.outcome, found.retry_after) == (Outcome.RATE_LIMITED, 6.0)
    large = "Request too large for gpt-5.4 in organization org-x on tokens per min (TPM): exceeds the context"
    assert read_error(large, 429).outcome is Outcome.RATE_LIMITED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 20s.", 20.0),
        ("Please try again in 1.5s.", 1.5),
        ("Please try again in 400ms.", 0.4),
        ("Please try again in 6m0s.", 360.0),
        ("Please try again in 1m30.5s.", 90.5),
        ("Please retry after 6 seconds.", 6.0),
        ("try again in 2 minutes", 120.0),
        ("retry-after: 7", 7.0),
        ('{"retry_after": 5}', 5.0),
        ("Retrying later, 3 attempts", None),
        ("retry 3 of 10 after the last", None),
        ("Overloaded", None),
    ],
)
def test_the_wait_is_found_in_the_text(text: str, seconds: float | None) -> None:
    assert wait_named_in(text) == seconds


def test_the_wait_that_the_cli_passed_on_wins_and_is_bounded() -> None:
    assert read_error("try again in 20s", 429, retry_after=3.0).retry_after == 3.0
    assert read_error("try again in 30 hours", 429).retry_after == LONGEST_WAIT
    assert read_error("no wait", 429, retry_after=-1.0).retry_after is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("API Error: 529 Overloaded", 529),
        ('API Error: 400 {"type":"error"}', 400),
        ("unexpected status 503 Service Unavailable", 503),
        ("HTTP/1.1 502", 502),
        ("failed (Status 404)", 404),
        ("read 512 lines, 404 of them empty", None),
        ("fake 4290", None),
    ],
)
def test_a_status_is_found_only_where_a_text_calls_it_one(text: str, status: int | None) -> None:
    assert status_named_in(text) == status


def test_the_reason_is_one_line_for_a_person() -> None:
    body = "API Error: 429 " + ANTHROPIC.format("rate_limit_error", "You go\\n too fast.")
    assert read_error(body).reason == "API Error: 429 You go too fast."
    assert sentence('{"detail": [1]}') == '{"detail": [1]}'
    assert sentence("cut {off") == "cut {off"
    assert len(sentence("x" * 5000)) <= SENTENCE
    assert read_error("", 500).reason == "The provider answered 500."


def test_it_ends_a_turn_with_what_was_used() -> None:
    end = read_error("try again in 2s", 429).turn_end(Usage(input_tokens=3))
    assert (end.outcome, end.retry_after, end.usage.input_tokens) == (Outcome.RATE_LIMITED, 2.0, 3)
