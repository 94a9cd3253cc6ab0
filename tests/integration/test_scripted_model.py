"""The scripted model on the wire: each API, streamed and whole, and every way to fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from agensh.embedded.model.conversation import Called, Figures, Returned, Said
from tests.support.scripted_model import scripted_model

FUNCTION = {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {"type": "string"}}}}
GROUP = {"type": "namespace", "name": "mcp__agensh", "tools": [{"type": "function", "name": "board_read"}]}
USAGE = "[[usage: input=90 cached=40 output=30 reasoning=10]]"


def ask(wire: str, text: str, *, stream: bool = True) -> tuple[str, dict[str, Any]]:
    """Return path and body of a first request."""
    if wire == "responses":
        user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        return "/v1/responses", {"model": "m", "input": [user], "tools": [FUNCTION, GROUP], "stream": stream}
    rows = [{"role": "user", "content": text}]
    if wire == "messages":
        tools = [{"name": "Bash", "input_schema": {"properties": {"command": {"type": "string"}}}}]
        return "/v1/messages", {"model": "m", "messages": rows, "tools": tools, "stream": stream, "max_tokens": 99}
    named = [{"type": "function", "function": {"name": "bash", "parameters": {"properties": {"command": {}}}}}]
    return "/v1/chat/completions", {"model": "m", "messages": rows, "tools": named, "stream": stream}


def events(text: str) -> list[dict[str, Any]]:
    rows = [row.removeprefix("data: ") for row in text.splitlines() if row.startswith("data: ")]
    return [json.loads(row) for row in rows if row != "[DONE]"]


WIRES = pytest.mark.parametrize("wire", ["responses", "chat", "messages"])


@pytest.fixture
async def model():
    async with scripted_model() as model:
        yield model


@pytest.fixture
async def http(model):
    headers = {"authorization": "Bearer worker-key"}
    async with httpx.AsyncClient(base_url=model.url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@WIRES
async def test_a_streamed_answer_has_its_text_and_the_usage_that_was_asked_for(http, model, wire):
    path, body = ask(wire, f"[[text: four words of it]] [[think: hm]] {USAGE}")
    answer = await http.post(path, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    got = events(answer.text)
    if wire == "responses":
        text = "".join(event["delta"] for event in got if event["type"] == "response.output_text.delta")
        last = got[-1]["response"]
        assert last["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
        assert last["output"][1]["content"][0]["text"] == text
        assert last["usage"] == {
            "input_tokens": 90,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 10},
            "total_tokens": 120,
        }
        assert [event["sequence_number"] for event in got] == list(range(1, len(got) + 1))
    elif wire == "chat":
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in got if event["choices"])
        assert got[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 40}
        assert got[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 10}
        assert answer.text.endswith("data: [DONE]\n\n")
    else:
        deltas = [event["delta"] for event in got if event["type"] == "content_block_delta"]
        text = "".join(delta.get("text", "") for delta in deltas)
        usage = next(event["usage"] for event in got if event["type"] == "message_delta")
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (50, 40, 30)
    assert text == "four words of it"
    assert model.requests[0].figures == Figures(90, 40, 30, 10)
    assert model.requests[0].key == "worker-key"


@WIRES
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_tool_call_and_its_result_go_round(http, model, wire, stream):
    path, body = ask(wire, "[[bash: ls]] [[text: bye]]", stream=stream)
    answer = await http.post(path, json=body)
    if wire == "responses":
        call = (events(answer.text)[-1]["response"] if stream else answer.json())["output"][0]
        assert (call["name"], json.loads(call["arguments"])) == ("exec_command", {"cmd": "ls"})
        body["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}]
    elif wire == "chat":
        choice = events(answer.text)[1]["choices"][0]["delta"] if stream else answer.json()["choices"][0]["message"]
        call = choice["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"},
        ]
    else:
        if stream:
            begun, delta = events(answer.text)[1:3]
            call = begun["content_block"] | {"input": json.loads(delta["delta"]["partial_json"])}
        else:
            call = answer.json()["content"][0]
        assert (call["name"], call["input"]["command"]) == ("Bash", "ls")
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "a.txt"}]}
        body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    answer = await http.post(path, json=body)
    assert "bye" in answer.text
    assert model.results() == ["a.txt"]
    conversation = model.requests[1].conversation
    assert conversation is not None
    assert [type(item) for item in conversation.items] == [Said, Called, Returned]
    # What the model said last is in the cache of the next request; the result is not.
    assert 0 < conversation.known < conversation.size


@WIRES
async def test_http_errors_have_the_shape_of_the_api(http, wire):
    path, body = ask(wire, "[[err: 429x1 retry-after=2]] [[text: bye]]")
    refused = await http.post(path, json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json().get("type") == ("error" if wire == "messages" else None)
    assert (await http.post(path, json=body)).status_code == 200
    assert (await http.post(path, json={"model": "m"})).status_code == 400


@WIRES
async def test_a_stream_that_is_cut_ends_without_its_end(http, wire):
    path, body = ask(wire, "[[cut]]")
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post(path, json=body)


@WIRES
async def test_a_stream_that_stalls_begins_and_holds_nothing_up(http, model, wire):
    path, body = ask(wire, "[[stall]] [[text: never the whole of it]]")
    async with http.stream("POST", path, json=body) as answer:
        lines = answer.aiter_lines()
        while "never the whole" not in await anext(lines):
            pass
        waiting = asyncio.ensure_future(anext(lines))
        # Others are answered meanwhile; leaving the stalled one must not hold up the end of the server.
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "scripted"
        waiting.cancel()
    assert len(model.requests) == 1


@WIRES
async def test_a_key_it_does_not_take_is_refused_as_a_provider_refuses_it(wire):
    path, body = ask(wire, "[[text: bye]]")
    async with scripted_model(key="sk-right") as model, httpx.AsyncClient(base_url=model.url, trust_env=False) as http:
        for headers in ({}, {"authorization": "Bearer sk-wrong"}, {"x-api-key": "sk-wrong"}):
            for method, place in (("POST", path), ("GET", "/v1/models"), ("POST", "/v1/messages/count_tokens")):
                refused = await http.request(method, place, headers=headers, json=body if method == "POST" else None)
                assert refused.status_code == 401
                assert refused.json()["error"]["message"] == "Incorrect API key provided."
        for headers in ({"authorization": "Bearer sk-right"}, {"x-api-key": "sk-right"}, {"api-key": "sk-right"}):
            assert (await http.post(path, headers=headers, json=body)).status_code == 200
            assert (await http.get("/v1/models", headers=headers)).json()["data"][0]["id"] == "scripted"


async def test_what_clis_ask_beside(http, model):
    assert (await http.head("/")).status_code == 200
    counted = await http.post("/v1/messages/count_tokens", json={"model": "m", "messages": []})
    assert counted.json()["input_tokens"] > 0
    path, body = ask("responses", "[[mcp: board_read {}]]", stream=False)
    call = (await http.post(path, json=body)).json()["output"][0]
    assert (call["name"], call["namespace"]) == ("board_read", "mcp__agensh")
    assert [each.path for each in model.requests] == ["/v1/messages/count_tokens", "/v1/responses"]
