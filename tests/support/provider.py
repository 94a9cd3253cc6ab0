"""A model provider of our own: a small HTTP server whose answers are written by hand, event by event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Handler = Callable[["Received", "Answer"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived on the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


class Answer:
    """Writes one answer, as slowly and as badly as a test wants it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunked = False
        self.sent = 0
        """Bytes of the body that the connection took."""

    async def whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send an answer with a length."""
        self._head(status, {"content-type": "application/json", "content-length": str(len(body))} | (headers or {}))
        self._writer.write(body)
        await self._writer.drain()

    async def json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send an answer as JSON."""
        await self.whole(status, json.dumps(value).encode(), headers)

    async def stream(self, headers: dict[str, str] | None = None) -> None:
        """Begin a stream of events."""
        self._chunked = True
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"} | (headers or {}))
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        """Send a piece of the stream."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()
        self.sent += len(data)

    async def event(self, value: Any, name: str = "") -> None:
        """Send one event."""
        await self.write(sse(value, name))

    async def end(self) -> None:
        """End the stream in order."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def cut(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Return when the client has left."""
        await self._reader.read()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())


@dataclass
class Provider:
    """Where it answers, what it was asked, and how it answers."""

    handler: Handler
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    @property
    def url(self) -> str:
        """Root of its API."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while (received := await _request(reader)) is not None:
                self.requests.append(received)
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    await self.handler(received, Answer(reader, writer))
                finally:
                    self.under_way -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def provider(handler: Handler) -> AsyncIterator[Provider]:
    """Run a provider on the loopback interface."""
    running = Provider(handler)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await running.serve(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=2048)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)


def sse(value: Any, name: str = "") -> bytes:
    """Return one server-sent event."""
    data = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


# What the three wires say, in short

USAGE = {"input": 1000, "cached": 600, "output": 50, "reasoning": 20}


def chat_events(text: Sequence[str] = ("Hel", "lo"), *, usage: bool = True, model: str = "gpt-5.4") -> list[bytes]:
    """Return the events of a Chat Completions stream; `usage` adds the chunk that tells the tokens."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    events = [
        sse({**base, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}) for part in text
    ]
    events.append(sse({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    if usage:
        events.append(sse({**base, "choices": [], "usage": chat_usage()}))
    return [*events, sse("[DONE]")]


def chat_usage() -> dict[str, Any]:
    """Return the usage of a Chat Completions answer."""
    return {
        "prompt_tokens": USAGE["input"],
        "completion_tokens": USAGE["output"],
        "total_tokens": USAGE["input"] + USAGE["output"],
        "prompt_tokens_details": {"cached_tokens": USAGE["cached"]},
        "completion_tokens_details": {"reasoning_tokens": USAGE["reasoning"]},
    }


def responses_usage() -> dict[str, Any]:
    """Return the usage of a Responses answer."""
    return {
        "input_tokens": USAGE["input"],
        "input_tokens_details": {"cached_tokens": USAGE["cached"]},
        "output_tokens": USAGE["output"],
        "output_tokens_details": {"reasoning_tokens": USAGE["reasoning"]},
        "total_tokens": USAGE["input"] + USAGE["output"],
    }


def responses_events(text: Sequence[str] = ("Hel", "lo"), *, model: str = "gpt-5.4") -> list[bytes]:
    """Return the events of a Responses stream."""
    answer: dict[str, Any] = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "model": model, "output": [],
        "usage": None, "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "tools": [],
        "parallel_tool_calls": True, "temperature": 1, "tool_choice": "auto", "top_p": 1,
    }  # fmt: skip
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    whole = [{"type": "output_text", "text": "".join(text), "annotations": []}]
    values: list[dict[str, Any]] = [
        {"type": "response.created", "response": answer},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {
            "type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        *(
            {
                "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
                "delta": part, "logprobs": [],
            }
            for part in text
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": whole}},
        {
            "type": "response.completed",
            "response": {
                **answer, "status": "completed", "output": [{**item, "content": whole}], "usage": responses_usage(),
            },
        },
    ]  # fmt: skip
    return [sse({**value, "sequence_number": number}, value["type"]) for number, value in enumerate(values)]


def messages_usage(output: int) -> dict[str, Any]:
    """Return the usage of a Messages answer: what the cache held stands beside the input."""
    return {
        "input_tokens": USAGE["input"] - USAGE["cached"],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": USAGE["cached"],
        "output_tokens": output,
    }


def messages_events(text: Sequence[str] = ("Hel", "lo"), *, model: str = "claude-sonnet-4-5") -> list[bytes]:
    """Return the events of a Messages stream."""
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": messages_usage(1),
    }  # fmt: skip
    values: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}} for part in text),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": USAGE["output"]},
        },
        {"type": "message_stop"},
    ]  # fmt: skip
    return [sse(value, value["type"]) for value in values]


EVENTS: dict[str, Callable[[], list[bytes]]] = {
    "/v1/chat/completions": chat_events,
    "/v1/responses": responses_events,
    "/v1/messages": messages_events,
}


async def usual(received: Received, answer: Answer) -> None:
    """Answer as a provider does that is well: streams where asked, models, counts."""
    if received.path.endswith("/models"):
        models = [{"id": name, "object": "model"} for name in ("gpt-5.4", "claude-sonnet-4-5", "other")]
        await answer.json({"object": "list", "data": models})
        return
    if received.path.endswith("/count_tokens"):
        await answer.json({"input_tokens": 17})
        return
    asked = received.json
    if not asked.get("stream"):
        await answer.json(_body(received.path, str(asked["model"])))
        return
    events = EVENTS[received.path]()
    if received.path.endswith("/chat/completions") and not (asked.get("stream_options") or {}).get("include_usage"):
        events = chat_events(usage=False)
    await answer.stream()
    for event in events:
        await answer.write(event)
    await answer.end()


def _body(path: str, model: str) -> dict[str, Any]:
    if path.endswith("/chat/completions"):
        message: dict[str, Any] = {"role": "assistant", "content": "Hello"}
        return {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "usage": chat_usage(),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }  # fmt: skip
    if path.endswith("/responses"):
        return {"id": "resp_1", "object": "response", "model": model, "status": "completed", "output": [],
                "usage": responses_usage()}  # fmt: skip
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": "Hello"}], "usage": messages_usage(USAGE["output"]),
    }  # fmt: skip
