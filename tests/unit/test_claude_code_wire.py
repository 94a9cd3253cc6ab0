"""The lines of Claude Code, as 2.1.332 writes them, and what the end of a turn is; no CLI runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.base import Outcome, Text, ToolActivity, Usage, WorkerLaunch
from adapters.claude_code import launching, wire
from adapters.claude_code.adapter import ClaudeCodeAdapter
from adapters.claude_code.outcome import asked_to_wait, turn_end
from agensh.errors import UsageError


def assistant(*blocks: object, **more: object) -> str:
    return json.dumps({"type": "assistant", "message": {"content": list(blocks)}, "parent_tool_use_id": None} | more)


def use(call: str, name: str, **given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def result(call: str, content: object, *, is_error: bool = False) -> str:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error}
    return json.dumps({"type": "user", "message": {"role": "user", "content": [block]}})


def test_what_it_says_and_does() -> None:
    reader = wire.Reader()
    read = reader.read
    assert read(assistant({"type": "text", "text": "hello"}, {"type": "thinking", "thinking": "hm"})) == [Text("hello")]
    assert read(assistant({"type": "text", "text": "a subagent"}, parent_tool_use_id="t9")) == []
    shell = ToolActivity("t1", "Bash", "shell", "$ ls")
    assert read(assistant(use("t1", "Bash", command="ls"))) == [shell]
    assert read(result("t1", "a\nb")) == [replace(shell, summary="$ ls\na\nb", ok=True)]
    assert read(assistant(use("t2", "mcp__agensh__board_write", type="FACT"))) == [
        ToolActivity("t2", "board_write", "mcp", '{"type": "FACT"}')
    ]
    [ended] = read(result("t2", [{"type": "text", "text": "too long"}], is_error=True))
    assert isinstance(ended, ToolActivity)
    assert (ended.name, ended.ok) == ("board_write", False)
    assert ended.summary.endswith("too long")
    assert read(assistant(use("t3", "Edit", file_path="/w/a.py"))) == [ToolActivity("t3", "Edit", "edit", "/w/a.py")]
    assert read(assistant(use("t4", "Read", file_path="/w/a.py")))[0] == ToolActivity(
        "t4", "Read", "other", '{"file_path": "/w/a.py"}'
    )
    assert read(result("nobody asked", "x")) == []


def test_a_long_call_keeps_its_beginning_and_the_end_of_its_output() -> None:
    reader = wire.Reader()
    reader.read(assistant(use("t1", "Bash", command="x" * 5000)))
    [ended] = reader.read(result("t1", "y" * 5000 + "the end"))
    assert isinstance(ended, ToolActivity)
    assert len(ended.summary) <= wire.SUMMARY + 1
    assert ended.summary.startswith("$ xxx")
    assert ended.summary.endswith("the end")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Error: not JSON",
        "[1, 2]",
        "[" * 100_000,
        '"text"',
        '{"type": "rate_limit_event"}',
        '{"type": "system", "subtype": "task_started"}',
        '{"type": "assistant", "message": "none"}',
        '{"type": "user", "message": {"content": [7, {"type": "tool_result"}]}}',
    ],
)
def test_what_says_nothing_is_passed_over(line: str) -> None:
    assert wire.Reader().read(line) == []


@pytest.mark.parametrize("kind", ["assistant", "user", "system", "result", "control_request", "control_response"])
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], {"content": 5}])
def test_no_shape_breaks_the_reader(kind: str, value: object) -> None:
    fields = ("message", "subtype", "request", "response", "usage", "model_usage_since_last_result", "origin", "errors")
    wire.Reader().read(json.dumps({"type": kind} | dict.fromkeys(fields, value)))
    for subtype in ("init", "api_retry"):
        row = {"type": kind, "subtype": subtype, "mcp_servers": value, "tools": value, "retry_delay_ms": value}
        wire.Reader().read(json.dumps(row))


def test_how_a_turn_begins_and_waits() -> None:
    read = wire.Reader().read
    line = {
        "type": "system",
        "subtype": "init",
        "mcp_servers": [{"name": "agensh", "status": "failed"}],
        "tools": ["A"],
    }
    assert read(json.dumps(line)) == [wire.Begun({"agensh": "failed"}, ("A",))]
    row = {"type": "system", "subtype": "api_retry", "retry_delay_ms": 1500, "error_status": 529, "error": "overloaded"}
    assert read(json.dumps(row)) == [wire.Retry(1.5, 529, "overloaded")]
    assert read(json.dumps(row | {"error_status": None})) == [wire.Retry(1.5, None, "overloaded")]
    assert read(assistant({"type": "text", "text": "API Error: 529"}, error="overloaded")) == [
        wire.Failed("overloaded")
    ]


def test_what_it_asks_and_answers() -> None:
    read = wire.Reader().read
    hook = {"subtype": "hook_callback", "callback_id": "PostToolUse", "input": {"hook_event_name": "PostToolUse"}}
    line = json.dumps({"type": "control_request", "request_id": "r1", "request": hook})
    assert read(line) == [wire.Asked("r1", "hook_callback", "PostToolUse")]
    fine = {"subtype": "success", "request_id": "r2", "response": {}}
    assert read(json.dumps({"type": "control_response", "response": fine})) == [wire.Answered("r2", "")]
    bad = {"subtype": "error", "request_id": "r2", "error": "no"}
    assert read(json.dumps({"type": "control_response", "response": bad})) == [wire.Answered("r2", "no")]


def test_a_prompt_that_is_taken_back_has_no_result() -> None:
    read = wire.Reader().read
    line = {"type": "command_lifecycle", "command_uuid": "u1", "state": "cancelled"}
    assert read(json.dumps(line)) == [wire.Dropped("u1")]
    assert read(json.dumps(line | {"state": "started"})) == []


def test_the_lines_that_we_write_are_lines() -> None:
    lines = [
        wire.user_line("two\nlines", "u1"),
        wire.request_line("r1", "initialize", wire.hook_fields(["PostToolUse"])),
        wire.answer_line("r1", {"hookSpecificOutput": {"additionalContext": "a\nb"}}),
        wire.refusal_line("r1", "no\nbody"),
    ]
    assert not any("\n" in line for line in lines)
    assert json.loads(lines[0])["message"]["content"] == [{"type": "text", "text": "two\nlines"}]
    hooks = {"PostToolUse": [{"matcher": "*", "hookCallbackIds": ["PostToolUse"]}]}
    assert json.loads(lines[1])["request"] == {"subtype": "initialize", "hooks": hooks}
    assert wire.hook_fields([]) == {}


def read_result(**fields: object) -> wire.Result:
    [found] = wire.Reader().read(json.dumps({"type": "result", "subtype": "success"} | fields))
    assert isinstance(found, wire.Result)
    return found


def test_the_tokens_of_a_turn_are_those_of_all_its_models() -> None:
    main = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 2}
    side = {"inputTokens": 1, "outputTokens": 1, "thinkingTokens": 4, "costUSD": 0.25}
    found = read_result(
        usage={"input_tokens": 9}, model_usage_since_last_result={"a": main | {"costUSD": 0.5}, "b": side}
    )
    assert found.usage == Usage(18, 5, 4, 4, 0.75)
    older = read_result(usage={"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 2})
    assert older.usage == Usage(13, 4, 2)
    assert read_result().usage == Usage()


def end_of(fields: dict[str, object], *, worked: bool = True, interrupted: bool = False, category: str = "") -> Outcome:
    found = turn_end(read_result(**fields), category=category, retry=None, worked=worked, interrupted=interrupted)
    assert found.outcome is Outcome.COMPLETED or found.reason
    return found.outcome


def failed(text: str, status: int | None = None, **fields: object) -> dict[str, object]:
    return {"is_error": True, "terminal_reason": "api_error", "result": text, "api_error_status": status} | fields


def test_how_a_turn_ends() -> None:
    done: dict[str, object] = {"terminal_reason": "completed", "result": "done"}
    aborted: dict[str, object] = {"subtype": "error_during_execution", "is_error": True}
    aborted["terminal_reason"] = "aborted_tools"
    assert end_of(done) is Outcome.COMPLETED
    assert end_of(done, interrupted=True) is Outcome.COMPLETED
    assert end_of(done, worked=False) is Outcome.NO_WORK
    assert end_of({"stop_reason": "refusal", "result": "I cannot help with that."}) is Outcome.REFUSED
    assert end_of(aborted, interrupted=True) is Outcome.INTERRUPTED
    assert end_of(aborted) is Outcome.CRASHED
    for reason in ("prompt_too_long", "blocking_limit"):
        assert end_of({"is_error": True, "terminal_reason": reason}) is Outcome.CONTEXT_WINDOW


@pytest.mark.parametrize(
    ("fields", "category", "outcome"),
    [
        (failed("API Error: Request rejected (429) · slow down", 429), "rate_limit", Outcome.RATE_LIMITED),
        (failed("API Error: 529 busy. This is a server-side issue", 529), "overloaded", Outcome.OVERLOADED),
        (failed("Failed to authenticate. API Error: 401 no", 401), "authentication_failed", Outcome.AUTH),
        (failed("API Error: 402 spent", 402), "unknown", Outcome.QUOTA_SPENT),
        (failed("API Error: refused", 400, api_error_type="agensh_budget_spent"), "unknown", Outcome.QUOTA_SPENT),
        (failed("Credit balance is too low"), "billing_error", Outcome.QUOTA_SPENT),
        (failed("There's an issue with the selected model", 404), "model_not_found", Outcome.REFUSED),
        (failed("API Error: Stream idle timeout - no chunks received"), "unknown", Outcome.OVERLOADED),
        (failed("API Error: Connection to the API was lost (ECONNRESET)."), "server_error", Outcome.OVERLOADED),
        (failed("words nobody knows", api_error="stream_idle_timeout"), "unknown", Outcome.OVERLOADED),
        (failed("words nobody knows"), "overloaded", Outcome.OVERLOADED),
        (failed("words nobody knows"), "unknown", Outcome.CRASHED),
        ({"is_error": True, "terminal_reason": "", "result": "words nobody knows"}, "rate_limit", Outcome.RATE_LIMITED),
    ],
)
def test_an_error_of_the_provider(fields: dict[str, object], category: str, outcome: Outcome) -> None:
    assert end_of(fields, category=category, worked=False) is outcome


def test_a_pause_is_the_providers_only_when_it_is_longer_than_the_clis_own() -> None:
    busy = read_result(**failed("API Error: 529 busy", 529))
    for seconds, wait in ((1.2, None), (7.5, 7.5)):
        retry = wire.Retry(seconds, 529, "overloaded")
        end = turn_end(busy, category="overloaded", retry=retry, worked=False, interrupted=False)
        assert (end.outcome, end.retry_after) == (Outcome.OVERLOADED, wait)


def test_a_long_pause_is_the_dispatchers() -> None:
    end = asked_to_wait(wire.Retry(60.0, 429, "rate_limit"), None)
    assert (end.outcome, end.retry_after) == (Outcome.RATE_LIMITED, 60.0)
    assert asked_to_wait(wire.Retry(60.0, None, "overloaded"), None).outcome is Outcome.OVERLOADED


def launch(folder: Path, **fields: object) -> WorkerLaunch:
    given = WorkerLaunch(
        "w1", folder / "home", folder / "work", folder / "tmp", folder / "log", "http://n/mcp/w1", "t0"
    )
    return replace(given, **fields)  # type: ignore[arg-type]


def test_nothing_secret_is_on_the_command_line(tmp_path: Path) -> None:
    given = launch(tmp_path, model="m", effort="high", model_key="key-1", model_url="http://g")
    config = launching.write_config(given)
    assert config.stat().st_mode & 0o777 == 0o600
    assert "Bearer t0" in config.read_text()
    line = launching.command(given, "/bin/claude", config, session="s1", resume=False)
    assert not {"t0", "key-1"} & set(" ".join(line).split())
    assert line[-2:] == ["--session-id", "s1"]
    assert line[line.index("--effort") + 1] == "high"
    assert launching.command(given, "/bin/claude", config, session="s1", resume=True)[-2:] == ["--resume", "s1"]


def test_the_environment_is_the_workers_own(tmp_path: Path) -> None:
    plain = launching.environment(launch(tmp_path, env={"PATH": "/bin", "TMPDIR": "/tmp"}))
    assert plain["PATH"] == "/bin"
    assert {plain[name] for name in ("TMPDIR", "CLAUDE_CODE_TMPDIR")} == {str(tmp_path / "tmp")}
    assert plain["CLAUDE_CONFIG_DIR"] == str(tmp_path / "home" / ".claude")
    assert not {name for name in plain if name.startswith("ANTHROPIC_")}
    full = launching.environment(
        launch(
            tmp_path, model="m", model_url="http://g", model_key="k", max_prompt_tokens=150_000, max_output_tokens=4000
        )
    )
    assert full["ANTHROPIC_BASE_URL"] == "http://g"
    assert full["ANTHROPIC_API_KEY"] == "k"
    assert full["CLAUDE_CODE_SUBAGENT_MODEL"] == full["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "m"
    assert full["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4000"
    assert full["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "150000"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"binry": "x"}, r"worker\.options\.binry: no such option of the claude-code harness; it has: binary, pack"),
        ({"stall_seconds": "9"}, r"worker\.options\.stall_seconds: '9' is not allowed: give a whole number from 10 to"),
        ({"stall_seconds": "ten"}, r"worker\.options\.stall_seconds: 'ten'"),
    ],
)
def test_a_wrong_option_is_named_before_a_run_starts(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ClaudeCodeAdapter.check("rebuild", options)
    ClaudeCodeAdapter.check("rebuild", {"stall_seconds": "60", "binary": "/bin/claude", "packages": "/opt/npm"})
