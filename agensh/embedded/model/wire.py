"""What the three wires have in common: frames of a stream, ids, pieces of a text."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from agensh.embedded.model.conversation import Conversation, Figures, Json, Refusal, Reply

_PIECES, _SHORTEST = 4, 16  # of a text that is not slow, and the characters of one
_PER_SECOND = 4  # pieces of a slow text


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event."""

    data: bytes
    content: bool = False
    """It carries a piece of the reply's content."""


class Speech(ABC):
    """How one wire reads a request and writes an answer."""

    @abstractmethod
    def read(self, body: Json) -> Conversation:
        """Return what a request says; KeyError, TypeError, AttributeError when it is not of this wire."""

    @abstractmethod
    def whole(self, asked: Conversation, reply: Reply, used: Figures) -> Json:
        """Return the answer to a request that does not want a stream."""

    @abstractmethod
    def frames(self, asked: Conversation, reply: Reply, used: Figures) -> Iterator[Frame]:
        """Return the events of the stream."""

    @abstractmethod
    def error(self, refusal: Refusal) -> Json:
        """Return the body of an HTTP error."""

    kinds: ClassVar[dict[int, str]] = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        529: "overloaded_error",
    }

    def kind(self, status: int) -> str:
        """Return the wire's word for a status."""
        return self.kinds.get(status, "api_error")


def sse(data: Json | str, event: str = "", *, content: bool = False) -> Frame:
    """Return a server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    head = f"event: {event}\n" if event else ""
    return Frame(f"{head}data: {text}\n\n".encode(), content)


def fresh(prefix: str) -> str:
    """Return a new id."""
    return prefix + uuid.uuid4().hex[:24]


def pieces(reply: Reply) -> list[str]:
    """Return the text in the pieces in which it is streamed."""
    if not reply.text:
        return [""]
    if reply.slow:
        length = max(1, -(-len(reply.text) // max(1, int(reply.slow * _PER_SECOND))))
    else:
        length = max(_SHORTEST, -(-len(reply.text) // _PIECES))
    return [reply.text[start : start + length] for start in range(0, len(reply.text), length)]
