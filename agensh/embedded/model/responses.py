"""The OpenAI Responses wire."""

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
from agensh.embedded.model.wire import Frame, Speech, fresh, pieces, sse

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class Responses(Speech):
    """`POST /v1/responses`."""

    def read(self, body: Json) -> Conversation:
        """See Speech.read."""
        given = body["input"]
        rows: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items: list[Item] = []
        for row in rows:
            kind = row.get("type", "message")
            if kind in _CALLS:
                items.append(Called(str(row.get("call_id")), str(row.get("name", kind))))
            elif kind in _OUTPUTS:
                items.append(Returned(str(row.get("call_id")), _output(row.get("output"))))
            elif "role" in row:
                items.append(Said(row["role"], plain(row.get("content"))))
        spoken = [row.get("role") == "assistant" or row.get("type") in (*_CALLS, "reasoning") for row in rows]
        # Codex with the newest models has its tools in an item of the input.
        offered = [*(body.get("tools") or [])]
        for row in rows:
            if row.get("type") == "additional_tools":
                offered += row.get("tools") or []
        return Conversation(
            Wire.RESPONSES,
            str(body.get("model", "")),
            tuple(items),
            tuple(_tools(offered)),
            bool(body.get("stream")),
            fresh=fresh_length(rows, spoken),
            effort=str((body.get("reasoning") or {}).get("effort") or ""),
        )

    def whole(self, asked: Conversation, reply: Reply, used: Figures) -> Json:
        """See Speech.whole."""
        output = [*_reasoning(reply), _item(reply, reply.text)]
        return {**_response(asked), "status": "completed", "output": output, "usage": _usage(used)}

    def frames(self, asked: Conversation, reply: Reply, used: Figures) -> Iterator[Frame]:
        """See Speech.frames."""
        number = 0

        def event(kind: str, *, content: bool = False, **values: Any) -> Frame:
            nonlocal number
            number += 1
            return sse({"type": kind, "sequence_number": number, **values}, kind, content=content)

        response = _response(asked)
        yield event("response.created", response=response)
        yield event("response.in_progress", response=response)
        output: list[Json] = []
        for item in _reasoning(reply):
            where = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
            yield event("response.output_item.added", output_index=0, item={**item, "summary": []})
            part = {"type": "summary_text", "text": ""}
            yield event("response.reasoning_summary_part.added", **where, part=part)
            yield event("response.reasoning_summary_text.delta", content=True, **where, delta=reply.thought)
            yield event("response.reasoning_summary_text.done", **where, text=reply.thought)
            yield event("response.reasoning_summary_part.done", **where, part={**part, "text": reply.thought})
            yield event("response.output_item.done", output_index=0, item=item)
            output.append(item)
        index = len(output)
        item = _item(reply, reply.text)
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            text: Json = {"type": "output_text", "text": "", "annotations": []}
            begun: Json = {**item, "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event("response.content_part.added", **place, content_index=0, part=text)
            for piece in pieces(reply):
                yield event("response.output_text.delta", content=True, **place, content_index=0, delta=piece)
            yield event("response.output_text.done", **place, content_index=0, text=reply.text)
            yield event("response.content_part.done", **place, content_index=0, part={**text, "text": reply.text})
        else:
            custom = item["type"] == "custom_tool_call"
            key, kind = ("input", "custom_tool_call_input") if custom else ("arguments", "function_call_arguments")
            begun = {**item, "status": "in_progress", key: ""}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event(f"response.{kind}.delta", content=True, **place, delta=item[key])
            yield event(f"response.{kind}.done", **place, **{key: item[key]})
        yield event("response.output_item.done", output_index=index, item=item)
        done = {**response, "status": "completed", "output": [*output, item], "usage": _usage(used)}
        yield event("response.completed", response=done)

    def error(self, refusal: Refusal) -> Json:
        """See Speech.error."""
        return openai_error(refusal, self.kind(refusal.status))


def openai_error(refusal: Refusal, kind: str) -> Json:
    """Return the error body of both OpenAI wires."""
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.code or None}}


def _output(output: object) -> str:
    return output if isinstance(output, str) else plain(output) or json.dumps(output)


def _tools(offered: list[Json]) -> Iterator[ToolSpec]:
    for row in offered:
        if row.get("type") == "namespace":
            group = str(row.get("name"))
            for each in row.get("tools") or []:
                yield tool(each["name"], each.get("parameters"), namespace=group, custom=each.get("type") == "custom")
        else:
            custom = row.get("type") == "custom"
            yield tool(row.get("name", row.get("type")), row.get("parameters"), custom=custom)


def _reasoning(reply: Reply) -> list[Json]:
    if not reply.thought:
        return []
    summary = [{"type": "summary_text", "text": reply.thought}]
    return [{"type": "reasoning", "id": fresh("rs_"), "summary": summary, "encrypted_content": "c2NyaXB0ZWQ="}]


def _item(reply: Reply, text: str) -> Json:
    call = reply.call
    if call is None:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {
            "type": "message",
            "id": fresh("msg_"),
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    head = {"call_id": reply.call_id or fresh("call_"), "name": call.name, "status": "completed"}
    if call.namespace:
        head["namespace"] = call.namespace
    if isinstance(call.arguments, str):
        return {"type": "custom_tool_call", "id": fresh("ctc_"), **head, "input": call.arguments}
    return {"type": "function_call", "id": fresh("fc_"), **head, "arguments": json.dumps(call.arguments)}


def _response(asked: Conversation) -> Json:
    return {
        "id": fresh("resp_"),
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "model": asked.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _usage(used: Figures) -> Json:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }
