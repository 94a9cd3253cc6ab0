"""The OpenAI Chat Completions wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agensh.embedded.model.conversation import (
    Called,
    Conversation,
    Figures,
    Item,
    Json,
    Refusal,
    Reply,
    Returned,
    Said,
    ToolSpec,
    Wire,
    fresh_length,
    plain,
    tool,
)
from agensh.embedded.model.responses import openai_error
from agensh.embedded.model.wire import Frame, Speech, fresh, pieces, sse


class ChatCompletions(Speech):
    """`POST /v1/chat/completions`."""

    def read(self, body: Json) -> Conversation:
        """See Speech.read."""
        rows: list[Json] = body["messages"]
        items: list[Item] = []
        for row in rows:
            text = plain(row.get("content"))
            if row["role"] == "tool":
                items.append(Returned(str(row.get("tool_call_id")), text))
                continue
            if text:
                items.append(Said(row["role"], text))
            for call in row.get("tool_calls") or []:
                what = call.get("function") or call.get("custom") or {}
                items.append(Called(str(call.get("id")), str(what.get("name"))))
        return Conversation(
            Wire.CHAT,
            str(body.get("model", "")),
            tuple(items),
            tuple(_tool(row) for row in body.get("tools") or []),
            bool(body.get("stream")),
            fresh=fresh_length(rows, [row["role"] == "assistant" for row in rows]),
            effort=str(body.get("reasoning_effort") or ""),
        )

    def whole(self, asked: Conversation, reply: Reply, used: Figures) -> Json:
        """See Speech.whole."""
        message: Json = {"role": "assistant", "content": reply.text or None}
        if reply.call is not None:
            message["tool_calls"] = [_call(reply)]
        choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
        return {**_head(asked), "object": "chat.completion", "choices": [choice], "usage": _usage(used)}

    def frames(self, asked: Conversation, reply: Reply, used: Figures) -> Iterator[Frame]:
        """See Speech.frames."""
        head = _head(asked)

        def chunk(delta: Json, reason: str | None = None, *, content: bool = False) -> Frame:
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
            return sse({**head, "choices": [choice]}, content=content)

        yield chunk({"role": "assistant", "content": ""})
        if reply.thought:
            yield chunk({"reasoning_content": reply.thought}, content=True)
        if reply.call is None:
            for piece in pieces(reply):
                yield chunk({"content": piece}, content=True)
        else:
            yield chunk({"tool_calls": [{"index": 0, **_call(reply)}]}, content=True)
        yield chunk({}, _reason(reply))
        yield sse({**head, "choices": [], "usage": _usage(used)})
        yield sse("[DONE]")

    def error(self, refusal: Refusal) -> Json:
        """See Speech.error."""
        return openai_error(refusal, self.kind(refusal.status))


def _tool(row: Json) -> ToolSpec:
    if row.get("type") == "custom":
        return tool((row.get("custom") or {}).get("name"), None, custom=True)
    function = row.get("function") or {}
    return tool(function.get("name"), function.get("parameters"))


def _call(reply: Reply) -> Json:
    call = reply.call
    assert call is not None
    head: Json = {"id": reply.call_id or fresh("call_")}
    if isinstance(call.arguments, str):
        return {**head, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {**head, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}


def _reason(reply: Reply) -> str:
    return "stop" if reply.call is None else "tool_calls"


def _head(asked: Conversation) -> Json:
    return {"id": fresh("chatcmpl-"), "object": "chat.completion.chunk", "created": 0, "model": asked.model}


def _usage(used: Figures) -> Json:
    return {
        "prompt_tokens": used.input,
        "prompt_tokens_details": {"cached_tokens": used.cached},
        "completion_tokens": used.output,
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }
