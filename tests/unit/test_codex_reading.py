"""What the notifications of Codex's app-server mean; the messages are those of 0.171.0."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from adapters.base import Outcome, Text, ToolActivity, Usage, WorkerLaunch
from adapters.codex.config import write_configuration
from adapters.codex.reading import Counter, error_of, item_of


def figures(total: tuple[int, int], last: tuple[int, int]) -> dict[str, Any]:
    def row(pair: tuple[int, int]) -> dict[str, int]:
        return {"inputTokens": pair[0], "outputTokens": pair[1], "cachedInputTokens": 0, "reasoningOutputTokens": 0}

    return {"total": row(total), "last": row(last)}


def test_a_turn_uses_what_the_thread_counted_more() -> None:
    counter = Counter(Usage())
    counter.begin()
    counter.take(figures((100, 5), (100, 5)))
    counter.take(figures((100, 5), (100, 5)))  # it comes again with every error
    counter.take(figures((220, 9), (120, 4)))
    assert counter.turn == Usage(input_tokens=220, output_tokens=9)
    counter.begin()
    counter.take(figures((350, 10), (130, 1)))
    assert counter.turn == Usage(input_tokens=130, output_tokens=1)


def test_a_resumed_thread_does_not_count_its_past() -> None:
    counter = Counter(None)
    counter.begin()
    counter.take(figures((1100, 25), (100, 5)))
    counter.take(figures((1300, 26), (200, 1)))
    assert counter.turn == Usage(input_tokens=300, output_tokens=6)


def test_a_count_that_begins_anew_is_no_negative_usage() -> None:
    counter = Counter(Usage())
    counter.begin()
    counter.take(figures((500, 9), (500, 9)))
    counter.take(figures((0, 0), (0, 0)))
    assert counter.turn == Usage(input_tokens=500, output_tokens=9)
    counter.begin()
    counter.take(figures((70, 2), (70, 2)))
    assert counter.turn == Usage(input_tokens=70, output_tokens=2)


@pytest.mark.parametrize(
    ("message", "info", "outcome"),
    [
        ('{"error":{"message":"The model said no.","type":"invalid_request_error"}}', "other", Outcome.REFUSED),
        ("unexpected status 401 Unauthorized: no", {"httpConnectionFailed": {"httpStatusCode": 401}}, Outcome.AUTH),
        ("exceeded retry limit", {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, Outcome.RATE_LIMITED),
        ("unexpected status 402", {"httpConnectionFailed": {"httpStatusCode": 402}}, Outcome.QUOTA_SPENT),
        ("We’re currently experiencing high demand.", "internalServerError", Outcome.OVERLOADED),
        ("Connection failed", {"responseStreamDisconnected": {"httpStatusCode": None}}, Outcome.OVERLOADED),
        ("stream disconnected before completion: idle timeout waiting for SSE", "other", Outcome.OVERLOADED),
        ("Codex ran out of room in the model's context window.", "contextWindowExceeded", Outcome.CONTEXT_WINDOW),
        ("You have hit your limit.", "usageLimitExceeded", Outcome.QUOTA_SPENT),
        ("It may not be said.", "misalignmentPolicyViolation", Outcome.REFUSED),
        ("Something nobody foresaw.", None, Outcome.CRASHED),
        ("Something nobody foresaw.", {}, Outcome.CRASHED),
    ],
)
def test_errors(message: str, info: object, outcome: Outcome) -> None:
    found = error_of({"message": message, "codexErrorInfo": info, "additionalDetails": None})
    assert found.outcome is outcome
    assert found.reason


def test_items() -> None:
    command = {"type": "commandExecution", "id": "c1", "command": "/bin/bash -c 'echo \"a b\"; exit 3'"}
    begun = item_of({**command, "status": "inProgress", "aggregatedOutput": None}, done=False)
    assert begun == ToolActivity("c1", "shell", "shell", 'echo "a b"; exit 3')
    ended = item_of({**command, "status": "failed", "aggregatedOutput": "a b\n", "exitCode": 3}, done=True)
    assert ended == ToolActivity("c1", "shell", "shell", 'echo "a b"; exit 3\na b', ok=False)
    assert item_of({"type": "agentMessage", "text": ""}, done=False) is None
    assert item_of({"type": "agentMessage", "text": "done"}, done=True) == Text("done")
    assert item_of({"type": "reasoning", "summary": ["hm"]}, done=True) is None
    changes = [{"path": "a.c"}, {"path": "b.c"}]
    edit = item_of({"type": "fileChange", "id": "e1", "status": "completed", "changes": changes}, done=True)
    assert edit == ToolActivity("e1", "apply_patch", "edit", "a.c b.c", ok=True)


def test_the_configuration_carries_any_text(tmp_path: Path) -> None:
    odd = 'a "quoted"\\ \n line\x7f ü 🙂'
    launch = WorkerLaunch(
        "demo-worker1", tmp_path, tmp_path, tmp_path, tmp_path / "log", "http://node/mcp/x", "token",
        model=odd, effort=odd, max_prompt_tokens=50_000, model_url="http://gateway/", model_key="key",
        options={"retries": "2", "stall_seconds": "1.5"},
    )  # fmt: skip
    write_configuration(launch)
    text = (tmp_path / ".codex" / "config.toml").read_text()
    config = tomllib.loads(text)
    assert config["model"] == config["model_reasoning_effort"] == odd
    assert config["model_context_window"] == 50_000
    provider = config["model_providers"]["agensh"]
    assert (provider["base_url"], provider["request_max_retries"]) == ("http://gateway/v1", 2)
    assert provider["stream_idle_timeout_ms"] == 1500
    assert "token" not in text.replace("bearer_token_env_var", "").replace("_TOKEN", "")
    assert 'key"' not in text.replace('env_key"', "")
