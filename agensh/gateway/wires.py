"""The three wires that workers speak: what the gateway reads of a request, and errors in each wire's own shape."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agensh.errors import AgenshError


class Wire(StrEnum):
    """A provider's API."""

    RESPONSES = "responses"
    CHAT = "chat"
    MESSAGES = "messages"
    OTHER = "other"
    """Model lists: no tokens."""


class Refusal(AgenshError):
    """The gateway answers by itself; the provider is not asked."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: float | None = None, reason: str = ""
    ) -> None:
        """`reason` is what the record keeps, where that is more than the code."""
        super().__init__(message)
        self.reason = reason or code
        self.status = status
        self.code = code
        self.retry_after = retry_after

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the answer's headers; `x-should-retry` keeps the providers' own clients from trying in vain."""
        found = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % max(1, round(self.retry_after))))
        else:
            found.append((b"x-should-retry", b"true" if self.status >= 500 else b"false"))
        if self.status == 401:
            found.append((b"www-authenticate", b'Bearer realm="agensh"'))
        return found

    def body(self, wire: Wire) -> bytes:
        """Return the answer's body in the shape that the clients of a wire read."""
        kind = _KINDS.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        if wire is Wire.MESSAGES:
            error: dict[str, Any] = {"type": kind, "message": str(self), "code": self.code}
            return json.dumps({"type": "error", "error": error}).encode()
        return json.dumps({"error": {"message": str(self), "type": kind, "param": None, "code": self.code}}).encode()


_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Effort(_Lenient):
    effort: str | None = None


class _StreamOptions(_Lenient):
    include_usage: bool | None = None


class RequestHead(_Lenient):
    """The fields of a request's body that the gateway looks at; the rest is the provider's affair."""

    model: str = ""
    stream: bool | None = None
    background: bool | None = None
    stream_options: _StreamOptions | None = None
    reasoning: _Effort | None = None
    reasoning_effort: str | None = None
    output_config: _Effort | None = None

    @property
    def effort(self) -> str:
        """The reasoning effort asked for; empty when none is."""
        for section in (self.reasoning, self.output_config):
            if section is not None and section.effort:
                return section.effort
        return self.reasoning_effort or ""


def read_head(body: bytes) -> RequestHead:
    """Read a request's body; Refusal (400) when it is none."""
    try:
        return RequestHead.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Refusal(400, "agensh_bad_request", f"{where}: {first['msg'][:200]}.") from None


def ask_for_usage(body: bytes, head: RequestHead) -> tuple[bytes, bool]:
    """Return the body of a Chat Completions stream with `stream_options.include_usage`, and whether that was added.

    The body of a client that asks for the usage itself stays as it is, byte for byte.
    """
    options = head.stream_options
    if options is not None and options.include_usage:
        return body, False
    if options is None and b'"stream_options"' not in body:
        # At the end: of a name that stands twice (the other one escaped, to get an answer without a meter) the last
        # one counts.
        return body.rstrip()[:-1] + b',"stream_options":{"include_usage":true}}', True
    value = json.loads(body)
    value["stream_options"] = {**(value.get("stream_options") or {}), "include_usage": True}
    return json.dumps(value).encode(), True
