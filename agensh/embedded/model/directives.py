"""The model that does what the prompt spells out, for tests.

The last message of the user that holds a directive is the script:

    [[bash: COMMAND]]               a call of the CLI's shell; [[bg: COMMAND]] leaves it in the background
    [[mcp: TOOL {json}]]            a call of a tool of an MCP server (SERVER/TOOL when several have one)
    [[tool: NAME {json}]]           a call of any tool, by the CLI's own name for it
    [[text: WORDS]]                 the last words; DONE without it
    [[think: WORDS]]                reasoning in front of every answer
    [[slow: SECONDS]]               the last words are streamed over that time
    [[err: 429x2 retry-after=1]]    at this point two HTTP errors; without `xN` every time. `code=WORD` names the code
    [[stall]] [[cut]]               at this point a stream stops, or is cut, after its first part; `[[cut: 2]]`: twice
    [[usage: input=9 cached=4 output=3 reasoning=1]]   figures of every answer; without it by lengths

One tool call an answer, in the order of the script. Where it stands follows from the number of calls in the
conversation since that message, so it goes on after a resume. Only the number of faults given is kept in memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field

from agensh.embedded.model.conversation import Call, Conversation, Fault, Figures, Json, Refusal, Reply, Said
from agensh.embedded.model.tools import NotOffered, mcp_call, named_call, shell_call

LAST_WORDS = "DONE"
_BEGIN = re.compile(r"\[\[(?P<name>bash|bg|mcp|tool|text|think|slow|err|stall|cut|usage)(?::[ \t]*|(?=\]\]))")
_WITH_JSON = re.compile(r"(?P<tool>[\w./-]+)\s*")
_ERROR = re.compile(r"(?P<status>\d{3})(?:x(?P<times>\d+))?(?P<more>(?:\s+[a-z-]+=\S+)*)")
_WORDS = re.compile(r"([a-z-]+)=(\S+)")
# In a provider's own words where a CLI hands on the message and drops the code.
_MESSAGES = {
    "context_length_exceeded": "Your input exceeds the context window of this model. Please adjust your input and try "
    "again.",
}


class BadDirective(ValueError):
    """A directive that cannot be read."""


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call."""

    kind: str
    """bash, bg, mcp or tool."""
    what: str
    """The command, or the tool's name."""
    arguments: Json | str = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong before the step of that index."""

    step: int
    times: int
    """0: every time."""
    fault: Fault | Refusal


@dataclass(frozen=True, slots=True)
class Script:
    """All directives of one message."""

    steps: tuple[Step, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    words: str = LAST_WORDS
    thought: str = ""
    slow: float = 0.0
    figures: Figures | None = None


def parse(text: str) -> Script | None:
    """Return the script in a text, None when it holds none; BadDirective names the one that cannot be read."""
    steps: list[Step] = []
    troubles: list[Trouble] = []
    single: dict[str, str] = {}
    place = 0
    while (begin := _BEGIN.search(text, place)) is not None:
        name = begin["name"]
        if name in ("mcp", "tool"):
            step, place = _tool_step(name, text, begin.end())
            steps.append(step)
            continue
        end = text.find("]]", begin.end())
        if end < 0:
            raise BadDirective(f"[[{name}: …: the closing ]] is missing")
        value, place = text[begin.end() : end].strip(), end + 2
        if name in ("bash", "bg"):
            steps.append(Step(name, value))
        elif name in ("err", "stall", "cut"):
            troubles.append(_trouble(name, value, len(steps)))
        else:
            single[name] = value
    if not (steps or troubles or single):
        return None
    return Script(
        tuple(steps),
        tuple(troubles),
        single.get("text", LAST_WORDS),
        single.get("think", ""),
        float(single.get("slow", 0)),
        _figures(single["usage"]) if "usage" in single else None,
    )


def _tool_step(kind: str, text: str, start: int) -> tuple[Step, int]:
    head = _WITH_JSON.match(text, start)
    if head is None:
        raise BadDirective(f"[[{kind}: …: the tool's name is missing")
    end = head.end()
    arguments: Json | str = {}
    if text.startswith("{", end):
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, end)
        except ValueError as error:
            raise BadDirective(f"[[{kind}: {head['tool']} …: {error}") from error
    close = text.find("]]", end)
    if close < 0:
        raise BadDirective(f"[[{kind}: {head['tool']} …: the closing ]] is missing")
    free = text[end:close].strip()
    return Step(kind, head["tool"], free or arguments), close + 2


def _trouble(name: str, value: str, step: int) -> Trouble:
    if name != "err":
        return Trouble(step, int(value or 0), Fault(name))
    match = _ERROR.fullmatch(value)
    if match is None:
        raise BadDirective(f"[[err: {value}]]: expected a status such as 429 or 429x2")
    more = dict(_WORDS.findall(match["more"]))
    status = int(match["status"])
    wait = float(more["retry-after"]) if "retry-after" in more else None
    code = more.get("code", "")
    refusal = Refusal(status, _MESSAGES.get(code, f"The script answers with {status}."), code, wait)
    return Trouble(step, int(match["times"] or 0), refusal)


def _figures(value: str) -> Figures:
    given = {name: int(number) for name, number in _WORDS.findall(value)}
    return Figures(given.get("input", 0), given.get("cached", 0), given.get("output", 0), given.get("reasoning", 0))


class Directed:
    """A player that follows the directives."""

    def __init__(self) -> None:
        self._given: Counter[tuple[str, str, int]] = Counter()

    async def play(self, conversation: Conversation) -> Reply | Refusal:
        """See Player.play."""
        script, made, text = Script(), 0, ""
        for index in range(len(conversation.items) - 1, -1, -1):
            item = conversation.items[index]
            if isinstance(item, Said) and item.role == "user" and (found := self._parse(item.text)) is not None:
                script, made, text = found, conversation.since(index), item.text
                break
        if not conversation.tools:
            # A question aside, such as for a title: it has no tools to call.
            return Reply(script.words, figures=script.figures)
        for number, trouble in enumerate(script.troubles):
            if trouble.step == min(made, len(script.steps)) and self._due(trouble, (conversation.caller, text, number)):
                if isinstance(trouble.fault, Refusal):
                    return trouble.fault
                return self._reply(script, made, conversation, trouble.fault)
        return self._reply(script, made, conversation, None)

    async def close(self) -> None:
        """See Player.close."""

    @staticmethod
    def _parse(text: str) -> Script | None:
        try:
            return parse(text)
        except BadDirective as error:
            return Script(words=f"BAD DIRECTIVE: {error}")

    def _due(self, trouble: Trouble, key: tuple[str, str, int]) -> bool:
        if trouble.times and self._given[key] >= trouble.times:
            return False
        self._given[key] += 1
        return True

    def _reply(self, script: Script, made: int, conversation: Conversation, fault: Fault | None) -> Reply:
        if made >= len(script.steps):
            return Reply(script.words, thought=script.thought, slow=script.slow, fault=fault, figures=script.figures)
        try:
            call = _call(script.steps[made], conversation)
        except NotOffered as error:
            return Reply(f"NOT OFFERED: {error}", figures=script.figures)
        return Reply(call=call, thought=script.thought, fault=fault, figures=script.figures)


def _call(step: Step, conversation: Conversation) -> Call:
    if step.kind in ("bash", "bg"):
        return shell_call(conversation.tools, step.what, background=step.kind == "bg")
    if step.kind == "mcp":
        if not isinstance(step.arguments, dict):
            raise NotOffered(f"{step.what} with text instead of JSON")
        return mcp_call(conversation.tools, step.what, step.arguments)
    return named_call(conversation.tools, step.what, step.arguments)
