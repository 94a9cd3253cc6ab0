"""Reads what a provider reports of a request's tokens, from bodies and from streams.

One convention for all wires: `input` counts every token of the prompt, with those read from and written to the cache;
`output` counts every token made, with those of reasoning. (Messages reports the cache's beside the input, the OpenAI
wires inside it.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from agensh.gateway.wires import Wire

MOST_EVENT = 64 * 2**20  # bytes of one event; a longer one is passed on and not looked at
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")
_USAGE = b'"usage"'


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one request or of many."""

    input: int = 0
    cached: int = 0
    """Of the input: read from the provider's cache."""
    cache_write: int = 0
    """Of the input: written to it."""
    output: int = 0
    reasoning: int = 0
    """Of the output."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


def read_usage(wire: Wire, usage: object) -> Tokens | None:
    """Return the tokens of a `usage` object of that wire; None when it is none."""
    if not isinstance(usage, dict):
        return None
    if wire is Wire.MESSAGES:
        cached, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
        return Tokens(
            input=_count(usage, "input_tokens") + cached + written,
            cached=cached,
            cache_write=written,
            output=_count(usage, "output_tokens"),
        )
    into, out = ("prompt", "completion") if wire is Wire.CHAT else ("input", "output")
    return Tokens(
        input=_count(usage, f"{into}_tokens"),
        cached=_count(usage.get(f"{into}_tokens_details"), "cached_tokens"),
        output=_count(usage, f"{out}_tokens"),
        reasoning=_count(usage.get(f"{out}_tokens_details"), "reasoning_tokens"),
    )


def _count(usage: object, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    # A bool is an int; and what a provider says must fit a column.
    return value if type(value) is int and 0 <= value < 2**53 else 0


class Meter:
    """Reads one stream of server-sent events while it passes.

    `feed` returns the bytes to send on now. Before they are sent, `final` says whether they hold the end of the answer:
    then what was metered has to be committed first.
    """

    def __init__(self, wire: Wire, *, hide_usage: bool = False) -> None:
        """`hide_usage` leaves out the chunk of a Chat Completions stream that a client did not ask for."""
        self.tokens: Tokens | None = None
        """What was reported so far."""
        self.complete = False
        """It is all of the request."""
        self.final = False
        self.model = ""
        """The model that answered, as the provider names it."""
        self._wire = wire
        self._hide = hide_usage
        self._buffer = bytearray()
        self._searched = 0
        self._lost = False
        self._prompt: dict[str, Any] = {}
        """Messages reports the prompt at the beginning and the answer at the end."""

    def feed(self, chunk: bytes) -> bytes:
        """Look at a piece of the stream, cut anywhere; return what to send on."""
        if self._lost:
            return chunk
        buffer = self._buffer
        if not buffer and chunk.endswith(b"\n\n") and self._dull(chunk):
            return chunk  # by far the most: whole events that tell nothing
        buffer += chunk
        ends = [match.end() for match in _END.finditer(buffer, self._searched)]
        if not ends:
            self._searched = max(0, len(buffer) - 3)
            if len(buffer) > MOST_EVENT:
                return self._give_up(chunk)
            return b"" if self._hide else chunk
        whole = bytes(buffer[: ends[-1]])
        del buffer[: ends[-1]]
        self._searched = max(0, len(buffer) - 3)
        kept = self._look(whole, ends)
        return kept if self._hide else chunk

    def rest(self) -> bytes:
        """Return what was kept back when the stream ended in the middle of an event."""
        left = bytes(self._buffer) if self._hide and not self._lost else b""
        self._buffer.clear()
        return left

    def _give_up(self, chunk: bytes) -> bytes:
        self._lost = True
        kept = bytes(self._buffer) if self._hide else chunk
        self._buffer.clear()
        return kept

    def _dull(self, events: bytes) -> bool:
        """Say whether nothing in there can concern the meter."""
        return _USAGE not in events and (b"[DONE]" if self._wire is Wire.CHAT else b"message_stop") not in events

    def _look(self, whole: bytes, ends: list[int]) -> bytes:
        """Read complete events; return those to send on."""
        if self._dull(whole):
            return whole
        kept = []
        start = 0
        for end in ends:
            event = whole[start:end]
            start = end
            if not self._read(event):
                kept.append(event)
        return b"".join(kept)

    def _read(self, event: bytes) -> bool:
        """Read one event; say whether it is to be hidden."""
        if self._wire is Wire.CHAT:
            return self._read_chat(event)
        if self._wire is Wire.RESPONSES:
            self._read_responses(event)
        elif self._wire is Wire.MESSAGES:
            self._read_messages(event)
        return False

    def _read_chat(self, event: bytes) -> bool:
        if event.rstrip().endswith(b"[DONE]"):
            self.final = True
            return False
        value = _data(event) if _USAGE in event else None
        if value is None:
            return False
        self.model = _text(value.get("model")) or self.model
        tokens = read_usage(self._wire, value.get("usage"))
        if tokens is None:
            return False
        # Some providers count up in every chunk; the last one counts.
        self.tokens, self.complete = tokens, True
        bare = not value.get("choices")
        if bare:
            self.final = True
        return self._hide and bare

    def _read_responses(self, event: bytes) -> None:
        name = _name(event)
        if _USAGE not in event or (name and name not in _LAST_OF_RESPONSES):
            return
        value = _data(event)
        if value is None or value.get("type") not in _LAST_OF_RESPONSES:
            return
        answer = value.get("response")
        if isinstance(answer, dict):
            self.model = _text(answer.get("model")) or self.model
            tokens = read_usage(self._wire, answer.get("usage"))
            if tokens is not None:
                self.tokens, self.complete = tokens, True
        self.final = True

    def _read_messages(self, event: bytes) -> None:
        value = _data(event) if _USAGE in event or b"message_stop" in event else None
        if value is None:
            return
        match value.get("type"):
            case "message_start":
                message = value.get("message")
                if isinstance(message, dict):
                    self.model = _text(message.get("model")) or self.model
                    if isinstance(message.get("usage"), dict):
                        self._prompt = message["usage"]
                        self.tokens = read_usage(self._wire, self._prompt)
            case "message_delta":
                usage = value.get("usage")
                if isinstance(usage, dict):
                    # Its figures are those of the whole message; what it does not repeat stands since the beginning.
                    told = {key: count for key, count in usage.items() if count is not None}
                    self.tokens, self.complete = read_usage(self._wire, self._prompt | told), True
            case "message_stop":
                self.final = True


_LAST_OF_RESPONSES = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


def read_body(wire: Wire, body: bytes) -> tuple[Tokens | None, str]:
    """Return the tokens and the model of an answer that was not streamed; None where it does not say."""
    try:
        value = from_json(body)
    except ValueError:
        return None, ""
    if not isinstance(value, dict):
        return None, ""
    return read_usage(wire, value.get("usage")), _text(value.get("model"))


def _fields(event: bytes, name: bytes) -> Iterator[bytes]:
    for line in _LINE.split(event):
        field, _, value = line.partition(b":")
        if field == name:
            yield value.removeprefix(b" ")


def _name(event: bytes) -> str:
    return next((name.decode(errors="replace") for name in _fields(event, b"event")), "")


def _data(event: bytes) -> dict[str, Any] | None:
    try:
        value = from_json(b"\n".join(_fields(event, b"data")))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
