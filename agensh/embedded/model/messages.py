"""The Anthropic Messages wire."""

from __future__ import annotations

import json
from collections.abc import Iterator

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
    Wire,
    fresh_length,
    plain,
    tool,
)
from agensh.embedded.model.wire import Frame, Speech, fresh, pieces, sse


class Messages(Speech):
    """`POST /v1/messages`."""

    def read(self, body: Json) -> Conversation:
        """See Speech.read."""
        rows: list[Json] = body["messages"]
        items: list[Item] = []
        for row in rows:
            content = row.get("content")
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
                match block.get("type"):
                    case "text":
                        items.append(Said(row["role"], block["text"]))
                    case "tool_use":
                        items.append(Called(str(block["id"]), str(block["name"])))
                    case "tool_result":
                        items.append(Returned(str(block["tool_use_id"]), plain(block.get("content"))))
        return Conversation(
            Wire.MESSAGES,
            str(body.get("model", "")),
            tuple(items),
            tuple(tool(row.get("name"), row.get("input_schema")) for row in body.get("tools") or []),
            bool(body.get("stream")),
            fresh=fresh_length(rows, [row["role"] == "assistant" for row in rows]),
            effort=str((body.get("output_config") or {}).get("effort") or ""),
        )

    def whole(self, asked: Conversation, reply: Reply, used: Figures) -> Json:
        """See Speech.whole."""
        block: Json = {"type": "text", "text": reply.text} if reply.call is None else _use(reply)
        return {
            **_message(asked),
            "content": [*_thinking(reply), block],
            "stop_reason": _reason(reply),
            "usage": _usage(used),
        }

    def frames(self, asked: Conversation, reply: Reply, used: Figures) -> Iterator[Frame]:
        """See Speech.frames."""
        begun = {**_usage(used), "output_tokens": 1}
        yield _event("message_start", message={**_message(asked), "usage": begun})
        index = 0
        for block in _thinking(reply):
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            yield _event("content_block_start", index=index, content_block=empty)
            for key, kind in (("thinking", "thinking_delta"), ("signature", "signature_delta")):
                delta = {"type": kind, key: block[key]}
                yield _event("content_block_delta", content=True, index=index, delta=delta)
            yield _event("content_block_stop", index=index)
            index += 1
        if reply.call is None:
            yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in pieces(reply):
                delta = {"type": "text_delta", "text": piece}
                yield _event("content_block_delta", content=True, index=index, delta=delta)
        else:
            use = _use(reply)
            yield _event("content_block_start", index=index, content_block={**use, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(use["input"])}
            yield _event("content_block_delta", content=True, index=index, delta=delta)
        yield _event("content_block_stop", index=index)
        end = {"stop_reason": _reason(reply), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage=_usage(used))
        yield _event("message_stop")

    def error(self, refusal: Refusal) -> Json:
        """See Speech.error."""
        return {
            "type": "error",
            "error": {"type": refusal.code or self.kind(refusal.status), "message": refusal.message},
            "request_id": fresh("req_"),
        }


def _event(kind: str, *, content: bool = False, **values: object) -> Frame:
    return sse({"type": kind, **values}, kind, content=content)


def _message(asked: Conversation) -> Json:
    return {
        "id": fresh("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _thinking(reply: Reply) -> list[Json]:
    if not reply.thought:
        return []
    return [{"type": "thinking", "thinking": reply.thought, "signature": "c2NyaXB0ZWQ="}]


def _use(reply: Reply) -> Json:
    call = reply.call
    assert call is not None
    arguments = {"input": call.arguments} if isinstance(call.arguments, str) else call.arguments
    return {"type": "tool_use", "id": reply.call_id or fresh("toolu_"), "name": call.name, "input": arguments}


def _reason(reply: Reply) -> str:
    return "end_turn" if reply.call is None else "tool_use"


def _usage(used: Figures) -> Json:
    # Here, and only here, the cached tokens are not part of the input.
    return {
        "input_tokens": used.input - used.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
    }
