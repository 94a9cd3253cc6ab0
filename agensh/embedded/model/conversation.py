"""A request of a CLI, read from any wire into one form, and what is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

Json = dict[str, Any]


class Wire(StrEnum):
    """The API a CLI speaks."""

    RESPONSES = "responses"
    CHAT = "chat/completions"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Said:
    """Text of the system, the user or the assistant."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call the model made earlier."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Returned:
    """What a tool call gave."""

    id: str
    text: str


Item = Said | Called | Returned


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the CLI offers."""

    name: str
    properties: Mapping[str, Json] = field(default_factory=dict)
    """The JSON schemas of its arguments."""
    required: Sequence[str] = ()
    namespace: str = ""
    """The group in which the CLI offers it."""
    custom: bool = False
    """It takes free text, not JSON."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that a request says."""

    wire: Wire
    model: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...] = ()
    stream: bool = False
    size: int = 0
    """Characters of the request."""
    fresh: int | None = None
    """Characters of what came after the model's last words; None when it has said nothing yet."""
    effort: str = ""
    worker: str = ""
    """The handle, when a gateway tells it."""
    caller: str = ""
    """Tells callers apart: the worker, else the credential's digest."""

    @property
    def known(self) -> int:
        """Characters that a provider's prefix cache has: all up to the model's last words."""
        return 0 if self.fresh is None else max(0, self.size - self.fresh)

    def since(self, index: int) -> int:
        """Return how many tool calls were made after the item at `index`."""
        return sum(isinstance(item, Called) for item in self.items[index:])


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make."""

    name: str
    arguments: Json | str
    """Free text for a custom tool."""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Tokens of one reply. `input` holds `cached`, `output` holds `reasoning`."""

    input: int
    cached: int
    output: int
    reasoning: int


class Fault(StrEnum):
    """How a stream goes wrong after its first part."""

    STALL = "stall"
    """Nothing more comes, and the connection stays open."""
    CUT = "cut"
    """The connection is closed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answers: text, or one tool call."""

    text: str = ""
    call: Call | None = None
    call_id: str = ""
    """Empty: a fresh one."""
    thought: str = ""
    slow: float = 0.0
    """Seconds over which the text is streamed."""
    fault: Fault | None = None
    figures: Figures | None = None
    """None: by the lengths of request and reply."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error instead of an answer."""

    status: int
    message: str
    code: str = ""
    retry_after: float | None = None
    """Seconds."""


class Player(Protocol):
    """Who answers."""

    async def play(self, conversation: Conversation) -> Reply | Refusal:
        """Return the answer to one request. Cancelled when the client is gone."""
        ...

    async def close(self) -> None:
        """End what is under way; nothing is asked any more."""
        ...


def count(characters: int) -> int:
    """Return the tokens of a text of that length: four characters each, rounded up."""
    return -(-characters // 4)


def figures_of(conversation: Conversation, reply: Reply) -> Figures:
    """Return the usage of a reply: given, or by lengths, so that whoever knows request and reply can predict it."""
    if reply.figures is not None:
        return reply.figures
    said = len(reply.text)
    if reply.call is not None:
        arguments = reply.call.arguments
        said += len(reply.call.name) + len(arguments if isinstance(arguments, str) else json.dumps(arguments))
    reasoning = count(len(reply.thought))
    return Figures(count(conversation.size), count(conversation.known), count(said) + reasoning, reasoning)


def plain(content: Any) -> str:
    """Return the text of a message's content: a string, or blocks of which those with text count."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (block if isinstance(block, str) else block.get("text") for block in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def tool(name: object, schema: object, *, namespace: str = "", custom: bool = False) -> ToolSpec:
    """Return the spec of a tool from its name and its JSON schema."""
    shape = schema if isinstance(schema, dict) else {}
    return ToolSpec(str(name), shape.get("properties") or {}, tuple(shape.get("required") or ()), namespace, custom)


def fresh_length(items: Sequence[object], spoken: Sequence[bool]) -> int | None:
    """Return the length, as JSON, of the items after the last one that the model spoke; None when there is none."""
    if not any(spoken):
        return None
    last = max(index for index, model in enumerate(spoken) if model)
    return sum(len(json.dumps(item, separators=(",", ":"), ensure_ascii=False)) for item in items[last + 1 :])
