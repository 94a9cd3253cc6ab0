"""The providers' own Python clients against the gateway: streams, tool calls, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from agensh.embedded.model import PRICES
from tests.support.gateway import ONE, Served, serving_gateway
from tests.support.scripted_model import scripted_model

TOOL = {
    "name": "look",
    "description": "Looks.",
    "schema": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
}
CALL = '[[tool: look {"where": "here"}]] [[text: Hello]]'


def to_openai(served: Served, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=served.keys[ONE], max_retries=0, **more)


def to_anthropic(served: Served, **more: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, api_key=served.keys[ONE], max_retries=0, **more)


async def test_responses(tmp_path: Path) -> None:
    async with (
        scripted_model() as model,
        serving_gateway(tmp_path, f"{model.url}/v1", auth="none", api_key_env="") as served,
        to_openai(served) as client,
    ):
        tool: Any = {"type": "function", "name": "look", "parameters": TOOL["schema"], "strict": False}
        async with client.responses.stream(model="scripted", input="[[text: Hello there]]", tools=[tool]) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert final.output_text == "Hello there"
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        called = await client.responses.create(model="scripted", input=CALL, tools=[tool])
        assert [item.name for item in called.output if item.type == "function_call"] == ["look"]
        rows = await served.rows()
        for row, usage in zip(rows, (final.usage, called.usage), strict=True):
            assert usage is not None
            assert (row["state"], row["input_tokens"], row["output_tokens"]) == (
                "metered", usage.input_tokens, usage.output_tokens,
            )  # fmt: skip
            assert row["cached_tokens"] == usage.input_tokens_details.cached_tokens


async def test_chat_completions(tmp_path: Path) -> None:
    async with (
        scripted_model() as model,
        serving_gateway(tmp_path, f"{model.url}/v1", auth="none", api_key_env="") as served,
        to_openai(served) as client,
    ):
        messages: Any = [{"role": "user", "content": "[[text: Hello there]]"}]
        tools: Any = [{"type": "function", "function": {"name": "look", "parameters": TOOL["schema"]}}]
        stream = await client.chat.completions.create(model="scripted", messages=messages, tools=tools, stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there"
        assert not any(chunk.usage for chunk in chunks), "it was not asked for"
        messages = [{"role": "user", "content": CALL}]
        called = await client.chat.completions.create(model="scripted", messages=messages, tools=tools)
        (call,) = called.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "look"
        first, second = await served.rows()
        assert (first["state"], second["state"]) == ("metered", "metered")
        assert called.usage is not None
        assert (second["input_tokens"], second["output_tokens"]) == (
            called.usage.prompt_tokens, called.usage.completion_tokens,
        )  # fmt: skip
        assert (await client.models.list()).data[0].id == "scripted"


async def test_messages(tmp_path: Path) -> None:
    async with (
        scripted_model() as model,
        serving_gateway(tmp_path, f"{model.url}/v1", auth="none", api_key_env="") as served,
        to_anthropic(served) as client,
    ):
        messages: Any = [{"role": "user", "content": "[[text: Hello there]]"}]
        tools: Any = [{"name": "look", "input_schema": TOOL["schema"]}]
        asked: Any = {"model": "scripted", "max_tokens": 100, "tools": tools}
        async with client.messages.stream(messages=messages, **asked) as stream:
            text = "".join([part async for part in stream.text_stream])
            final = await stream.get_final_message()
        assert text == "Hello there"
        called = await client.messages.create(messages=[{"role": "user", "content": CALL}], **asked)
        assert [block.name for block in called.content if block.type == "tool_use"] == ["look"]
        counted = await client.messages.count_tokens(messages=messages, model="scripted")
        assert counted.input_tokens > 0
        for row, usage in zip(await served.rows(), (final.usage, called.usage), strict=True):
            whole = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
            assert (row["state"], row["input_tokens"], row["output_tokens"]) == ("metered", whole, usage.output_tokens)


@pytest.mark.parametrize(
    ("status", "of_openai", "of_anthropic"),
    [
        (400, openai.BadRequestError, anthropic.BadRequestError),
        (401, openai.AuthenticationError, anthropic.AuthenticationError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
    ],
)
async def test_their_errors_are_theirs(
    tmp_path: Path, status: int, of_openai: type[Exception], of_anthropic: type[Exception]
) -> None:
    async with (
        scripted_model() as model,
        serving_gateway(tmp_path, f"{model.url}/v1", auth="none", api_key_env="") as served,
        to_openai(served) as one,
        to_anthropic(served) as other,
    ):
        prompt: Any = [{"role": "user", "content": f"[[err: {status}x9]]"}]
        # The scripted model takes a request without tools for a question beside the work.
        functions: Any = [{"type": "function", "function": {"name": "look", "parameters": TOOL["schema"]}}]
        tools: Any = [{"name": "look", "input_schema": TOOL["schema"]}]
        with pytest.raises(of_openai):
            await one.chat.completions.create(model="scripted", messages=prompt, tools=functions, stream=True)
        with pytest.raises(of_anthropic):
            await other.messages.create(model="scripted", messages=prompt, tools=tools, max_tokens=5)
        assert {(row["state"], row["status"]) for row in await served.rows()} == {("failed", status)}


async def test_a_spent_budget_is_an_error_that_their_clients_do_not_try_again(tmp_path: Path) -> None:
    async with (
        scripted_model() as model,
        serving_gateway(
            tmp_path, f"{model.url}/v1", auth="none", api_key_env="", worker_budget_usd=1e-9, prices=PRICES
        ) as served,
        to_openai(served).with_options(max_retries=5) as one,
        to_anthropic(served).with_options(max_retries=5) as other,
    ):
        messages: Any = [{"role": "user", "content": "[[text: x]]"}]
        await one.chat.completions.create(model="scripted", messages=messages)
        for attempt in (
            one.responses.create(model="scripted", input="x"),
            one.chat.completions.create(model="scripted", messages=messages),
        ):
            with pytest.raises(openai.APIStatusError, match="agensh_budget_spent") as caught:
                await attempt
            assert (caught.value.status_code, caught.value.code) == (402, "agensh_budget_spent")
        with pytest.raises(anthropic.APIStatusError, match="agensh_budget_spent") as refused:
            await other.messages.create(model="scripted", messages=messages, max_tokens=5)
        assert refused.value.status_code == 402
        assert [row["state"] for row in await served.rows()] == ["metered", "refused", "refused", "refused"]
