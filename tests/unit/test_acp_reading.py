"""What ACP agents report, as they were seen to report it, and what the adapters make of it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.acp import failures
from adapters.acp.adapter import AcpAdapter
from adapters.acp.client import CallFailed
from adapters.acp.updates import Log, MarkedLog, usage_of
from adapters.base import Outcome, Text, ToolActivity, TurnItem, Usage
from adapters.copilot import installed, remarks
from adapters.copilot.adapter import CopilotAdapter, CopilotLog
from agensh.errors import UsageError

RETRIED = "Error: Failed to get response from the AI model; retried 5 times (total retry wait time: 6.00 seconds) "


def chunk(text: str, message: str = "") -> dict[str, Any]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return update | ({"messageId": message} if message else {})


def told(log: Log, *updates: dict[str, Any]) -> list[TurnItem]:
    return [item for update in updates for item in log.items(update)]


def test_pieces_of_a_text_are_one() -> None:
    log = Log()
    assert told(log, chunk("one "), chunk("two")) == []
    assert log.said() == [Text("one two")]
    assert log.said() == []
    assert log.worked


def test_a_shell_command_of_copilot() -> None:
    log = Log()
    begun = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "run", "kind": "execute", "status": "pending"}
    output = {
        "content": "\n<shellId: 0 completed with exit code 3>",
        "contents": [{"type": "shell_exit", "exitCode": 3}],
    }
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed", "rawOutput": output}
    items = told(log, chunk("now"), begun | {"rawInput": {"command": "exit 3"}}, ended)
    summary = "$ exit 3\n<shellId: 0 completed with exit code 3>"
    assert items == [
        Text("now"),
        ToolActivity("c1", "shell", "shell", "$ exit 3"),
        ToolActivity("c1", "shell", "shell", summary, ok=False),
    ]


def test_a_shell_command_of_codex_acp_has_its_output_in_pieces() -> None:
    log = Log()
    begun = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "title": "ls",
        "kind": "execute",
        "status": "in_progress",
    }
    change = {"sessionUpdate": "tool_call_update", "toolCallId": "c1"}
    first = change | {"_meta": {"terminal_output_delta": {"data": "a\n"}}}
    last = change | {
        "status": "completed",
        "_meta": {"terminal_output_delta": {"data": "b\n"}, "terminal_exit": {"exit_code": 0}},
    }
    assert told(log, begun, first, last)[-1] == ToolActivity("c1", "shell", "shell", "$ ls\na\nb", ok=True)


@pytest.mark.parametrize(
    "call",
    [
        {"title": "agensh-board_read", "kind": "other"},
        {"title": "mcp.agensh.board_read", "kind": "execute"},
        {"title": "mcp__agensh__board_read", "kind": "other"},
        {"title": "Read the board", "kind": "other", "rawInput": {"server": "agensh", "tool": "board_read"}},
    ],
)
def test_our_tools_are_known_whatever_they_are_called(call: dict[str, Any]) -> None:
    log = Log()
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    items = told(log, {"sessionUpdate": "tool_call", "toolCallId": "c1", "status": "pending"} | call, update)
    assert [(item.name, item.kind) for item in items if isinstance(item, ToolActivity)] == [
        ("agensh-board_read", "mcp")
    ] * 2
    assert log.ours


def test_a_command_that_is_named_late() -> None:
    # claude-agent-acp
    log = Log()
    begun = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Terminal", "kind": "execute", "rawInput": {}}
    change = {"sessionUpdate": "tool_call_update", "toolCallId": "c1"}
    named = change | {"title": "exit 3", "rawInput": {"command": "exit 3"}}
    items = told(log, begun, named, change | {"status": "failed", "rawOutput": "Exit code 3"})
    assert items[-1] == ToolActivity("c1", "shell", "shell", "$ exit 3\nExit code 3", ok=False)


def test_what_came_before_the_turn_is_none_of_it() -> None:
    log = Log()
    assert told(log, {"sessionUpdate": "tool_call_update", "toolCallId": "old", "status": "failed"}) == []
    assert not log.worked


def test_only_texts_and_calls_are_progress() -> None:
    log = Log()
    log._moved -= 50
    told(log, {"sessionUpdate": "session_info_update"}, {"sessionUpdate": "usage_update"})
    left = log.patience(60)
    assert left is not None
    assert left <= 10
    told(log, {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x", "status": "pending"})
    assert log.patience(60) is None


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        # Copilot counts what came from the cache as input, codex-acp beside it.
        ({"inputTokens": 100, "outputTokens": 15, "totalTokens": 115, "cachedReadTokens": 33, "thoughtTokens": 6}, 100),
        ({"inputTokens": 67, "outputTokens": 15, "totalTokens": 115, "cachedReadTokens": 33, "thoughtTokens": 6}, 100),
        ({"inputTokens": 100, "outputTokens": 15, "cachedReadTokens": 33, "thoughtTokens": 6}, 100),
    ],
)
def test_tokens(usage: dict[str, int], known: int) -> None:
    assert usage_of({"usage": usage}) == Usage(known, 33, 15, 6)
    assert usage_of({"usage": None}) is None


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("Error: 400 mock error 400", Outcome.REFUSED),
        ("Error: Authentication failed with provider at http://127.0.0.1:1/v1 (HTTP 401).\n  Check it.", Outcome.AUTH),
        ("Error: 402 The budget of worker demo-worker1 is spent ($0.05 of $0.05).", Outcome.QUOTA_SPENT),
        ("Error: Model 'x' not found on provider at http://127.0.0.1:1/v1 (HTTP 404).", Outcome.REFUSED),
        (RETRIED + "Last error: 429 Rate limit reached", Outcome.RATE_LIMITED),
        (RETRIED + "Last error: 429 You exceeded your current quota", Outcome.QUOTA_SPENT),
        (RETRIED + "Last error: 500 mock error 500", Outcome.OVERLOADED),
        (RETRIED + "Last error: The model melted", Outcome.OVERLOADED),
        (
            RETRIED + "Last error: Failed native model HTTP request: error decoding response body: unexpected EOF",
            Outcome.OVERLOADED,
        ),
        (
            RETRIED + "Last error: 400 Your input exceeds the context window of this model. Please adjust your input.",
            Outcome.CONTEXT_WINDOW,
        ),
        (
            "Error: The provider rejected the prompt as too long, but automatic recovery could not reduce it.",
            Outcome.CONTEXT_WINDOW,
        ),
        ("Error: Could not connect to local model provider at http://127.0.0.1:1/v1.", Outcome.OVERLOADED),
        ("Error: No response was returned. Send your message again to retry.", Outcome.NO_WORK),
    ],
)
def test_errors_of_copilot(said: str, outcome: Outcome) -> None:
    assert remarks.is_error(said)
    found = remarks.read(said)
    assert found.outcome is outcome
    assert found.reason


def test_a_wait_that_the_provider_asks_for_is_passed_on() -> None:
    found = remarks.read(RETRIED + "Last error: 429 Rate limit reached, try again in 7s")
    assert (found.outcome, found.retry_after) == (Outcome.RATE_LIMITED, 7)


def test_what_copilot_says_for_itself_is_no_text() -> None:
    log = CopilotLog()
    told(log, chunk("half an "), chunk("Info: Response was interrupted due to a server error. Retrying..."))
    told(log, chunk("half an answer"))
    told(log, chunk("Warning: 1 tool call(s) had no recorded result at resume."))
    assert log.said() == [Text("half an answer")]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ('{"error": {"message": "mock error 400", "type": "x", "code": null}}\n\n', Outcome.REFUSED),
        ("unexpected status 402 Payment Required: The budget is spent., url: http://x\n\n", Outcome.QUOTA_SPENT),
        ("exceeded retry limit, last status: 429 Too Many Requests\n\n", Outcome.RATE_LIMITED),
        ("We\u2019re currently experiencing high demand, which may cause temporary errors.\n\n", Outcome.OVERLOADED),
        ("stream disconnected before completion: idle timeout waiting for SSE\n\n", Outcome.OVERLOADED),
        ("Warning: Model metadata for `x` not found.\n\n", None),
    ],
)
def test_remarks_of_codex_acp(said: str, outcome: Outcome | None) -> None:
    log = MarkedLog()
    told(log, chunk("half", "m1"), chunk(said))
    found = failures.of_remark(log.remark)
    assert (found.outcome if found else None) is outcome
    assert log.said() == [Text("half")]
    told(log, chunk("more", "m2"))
    assert failures.of_remark(log.remark) is None


def test_errors_of_the_protocol() -> None:
    assert failures.of_error(CallFailed(-32000, "Authentication required")).outcome is Outcome.AUTH
    said = CallFailed(-32603, "Internal error", {"details": "API Error: 529 overloaded_error"})
    assert failures.of_error(said).outcome is Outcome.OVERLOADED
    said = CallFailed(-32603, "Internal error: API Error: no luck", {"errorKind": "rate_limit"})
    limited = failures.of_error(said)
    assert (limited.outcome, limited.reason) == (Outcome.RATE_LIMITED, "Internal error: API Error: no luck")
    refusal = failures.of_result({"stopReason": "refusal"})
    assert refusal is not None
    assert refusal.outcome is Outcome.REFUSED
    assert failures.of_result({"stopReason": "end_turn"}) is None


@pytest.mark.parametrize(
    ("adapter", "options", "said"),
    [
        (AcpAdapter, {}, r"worker\.options\.command: missing; the acp harness needs the agent's command line\."),
        (AcpAdapter, {"command": " "}, r"worker\.options\.command: ' ' is not allowed: it is empty\."),
        (AcpAdapter, {"command": "'a"}, r"it is no command line"),
        (AcpAdapter, {"command": "a", "mode": "x"}, r"worker\.options\.mode: no such option of the acp harness"),
        (CopilotAdapter, {"wire": "chat"}, r"'chat' is not allowed: it is one of responses, completions, anthropic\."),
        (CopilotAdapter, {"command": "a"}, r"worker\.options\.command: no such option of the copilot harness"),
    ],
)
def test_wrong_options(adapter: type[AcpAdapter], options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        adapter.check("repo", options)


def test_right_options() -> None:
    AcpAdapter.check("repo", {"command": "claude-agent-acp", "env.ANTHROPIC_BASE_URL": "$model_url"})
    CopilotAdapter.check("rebuild", {"wire": "anthropic", "stall_seconds": "900", "model_like": "gpt-5.4"})


@pytest.mark.parametrize(
    ("version", "wants"),
    [("1.0.68", False), ("1.0.70", True), ("1.0.77", True), ("1.0.78", False), ("1.0.102", False), ("", True)],
)
def test_versions_that_want_a_login(version: str, wants: bool) -> None:
    assert installed.wants_login(version) is wants
