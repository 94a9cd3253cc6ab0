"""The directives of the scripted model, and the names under which CLIs offer their tools. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from agensh.embedded.model.conversation import (
    Call,
    Called,
    Conversation,
    Fault,
    Figures,
    Refusal,
    Reply,
    Returned,
    Said,
    ToolSpec,
    Wire,
)
from agensh.embedded.model.directives import BadDirective, Directed, Step, parse
from agensh.embedded.model.tools import NotOffered, mcp_call, shell_call

CODEX = (
    ToolSpec("exec_command", {"cmd": {}, "yield_time_ms": {}, "max_output_tokens": {}}, ("cmd",)),
    ToolSpec("board_write", {}, namespace="mcp__agensh"),
)
CLAUDE = (
    ToolSpec("Bash", {"command": {}, "timeout": {}, "description": {}, "run_in_background": {}}, ("command",)),
    ToolSpec("mcp__agensh__board_write"),
)
COPILOT = (
    ToolSpec("bash", {"command": {}, "mode": {}, "initial_wait": {}}, ("command", "mode")),
    ToolSpec("agensh-board_write"),
)


def asked(text: str, calls: int = 0, tools=CODEX, caller: str = "a") -> Conversation:
    items: list[Any] = [Said("system", "[[text: not mine]]"), Said("user", text)]
    for number in range(calls):
        items += [Called(f"c{number}", "x"), Returned(f"c{number}", "[[text: neither]]")]
    return Conversation(Wire.RESPONSES, "m", tuple(items), tools, caller=caller)


def test_all_directives_of_a_message():
    script = parse(
        'First [[bash: echo "[1]" | cat]] then [[mcp: board_write {"rows": [[1]], "text": "]]"}]] [[tool: patch *** a]]'
        "[[think: hm]] [[slow: 1.5]] [[text: bye]] [[usage: input=9 cached=4 output=3 reasoning=1]]"
    )
    assert script is not None
    assert script.steps == (
        Step("bash", 'echo "[1]" | cat'),
        Step("mcp", "board_write", {"rows": [[1]], "text": "]]"}),
        Step("tool", "patch", "*** a"),
    )
    assert (script.words, script.thought, script.slow) == ("bye", "hm", 1.5)
    assert script.figures == Figures(9, 4, 3, 1)
    assert parse("if [[ -f x ]]; then [[other: x]]") is None


@pytest.mark.parametrize("text", ["[[bash: ls", "[[err: soon]]", '[[mcp: t {"a"]]', "[[tool:]]"])
def test_a_directive_that_cannot_be_read_is_named(text):
    with pytest.raises(BadDirective, match=r"\[\["):
        parse(text)


async def test_the_step_follows_from_the_conversation_alone():
    text = '[[bash: ls]] [[mcp: board_write {"a": 1}]] [[text: bye]]'
    replies = [await Directed().play(asked(text, calls)) for calls in range(3)]
    assert [reply.call and reply.call.name for reply in replies if isinstance(reply, Reply)] == [
        "exec_command",
        "board_write",
        None,
    ]
    assert replies[1] == Reply(call=Call("board_write", {"a": 1}, "mcp__agensh"))
    assert replies[2] == Reply("bye")
    assert await Directed().play(asked("no directive")) == Reply("DONE")
    assert await Directed().play(asked(text, tools=())) == Reply("bye")


async def test_errors_come_at_their_place_as_often_as_asked_for_each_caller():
    player = Directed()
    text = "[[bash: ls]] [[err: 429x2 retry-after=1]] [[text: bye]]"
    refusal = Refusal(429, "The script answers with 429.", "", 1.0)
    assert isinstance(await player.play(asked(text)), Reply)
    assert [await player.play(asked(text, 1)) for _ in range(3)] == [refusal, refusal, Reply("bye")]
    assert await player.play(asked(text, 1, caller="b")) == refusal
    assert await player.play(asked("[[cut: 1]]")) == Reply("DONE", fault=Fault.CUT)
    assert await player.play(asked("[[cut: 1]]")) == Reply("DONE")
    assert await player.play(asked("[[err: 500 code=oops]]")) == Refusal(500, "The script answers with 500.", "oops")


@pytest.mark.parametrize(
    ("tools", "shell", "board"),
    [
        (
            CODEX,
            Call("exec_command", {"cmd": "ls", "yield_time_ms": 30000, "max_output_tokens": 50000}),
            Call("board_write", {"a": 1}, "mcp__agensh"),
        ),
        (
            CLAUDE,
            Call("Bash", {"command": "ls", "description": "ls", "timeout": 600000}),
            Call("mcp__agensh__board_write", {"a": 1}),
        ),
        (
            COPILOT,
            Call("bash", {"command": "ls", "mode": "sync", "initial_wait": 600}),
            Call("agensh-board_write", {"a": 1}),
        ),
    ],
    ids=["codex", "claude", "copilot"],
)
def test_each_cli_gets_its_own_names(tools, shell, board):
    assert shell_call(tools, "ls") == shell
    assert mcp_call(tools, "board_write", {"a": 1}) == board
    assert mcp_call(tools, "agensh/board_write", {"a": 1}) == board
    with pytest.raises(NotOffered):
        mcp_call(tools, "write", {})
    with pytest.raises(NotOffered):
        mcp_call(tools, "other/board_write", {})
