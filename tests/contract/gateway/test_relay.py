"""What passes between a worker and the provider, and how: on real sockets, against a provider of our own."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import httpx
import pytest

from tests.support.gateway import CREDENTIAL, ONE, Served, serving_gateway
from tests.support.provider import EVENTS, USAGE, Answer, Received, chat_events, provider, sse, usual

WIRES = list(EVENTS)
WAIT = 30.0  # seconds for what has to happen


async def settled(served: Served, count: int = 1) -> None:
    """Wait until that many requests are on record and none is open."""
    async with asyncio.timeout(WAIT):
        while True:
            states = [row["state"] for row in await served.rows()]
            if len(states) >= count and "open" not in states:
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", WIRES)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_passes_unchanged_and_is_metered(tmp_path: Path, path: str, stream: bool) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = {"model": "gpt-5.4", "stream": stream, "messages": [{"role": "user", "content": "häl\u2028lo"}]}
        async with httpx.AsyncClient(trust_env=False) as http:
            direct = (await http.post(upstream.url.removesuffix("/v1") + path, json=body)).content
        answered = await gateway.ask(path, body)
        assert (answered.status_code, answered.content) == (200, direct)
        (row,) = await gateway.rows()
        assert (row["worker"], row["model"], row["state"], row["status"]) == (ONE, "gpt-5.4", "metered", 200)
        assert (row["input_tokens"], row["cached_tokens"]) == (USAGE["input"], USAGE["cached"])
        assert row["output_tokens"] == USAGE["output"]
        assert row["reasoning_tokens"] == (0 if path.endswith("messages") else USAGE["reasoning"])
        assert row["cost_usd"] == pytest.approx((400 * 2.5 + 600 * 0.25 + 50 * 15) / 1e6)
        assert row["ended_at"] >= row["started_at"]


async def test_the_provider_sees_its_credential_and_nothing_of_the_worker(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        sent = {
            "anthropic-version": "2023-06-01", "anthropic-beta": "x", "cookie": "a=b", "x-agensh-worker": "evil",
            "api-key": "mine", "forwarded": "for=1", "x-forwarded-for": "1", "accept-encoding": "gzip, br",
            "user-agent": "cli/1",
        }  # fmt: skip
        for headers in (gateway.auth(), {"x-api-key": gateway.keys[ONE]}):
            await gateway.http.post(
                "/v1/messages?beta=true&key=k&api_key=k", json={"model": "m"}, headers=sent | headers
            )
        for received in upstream.requests:
            assert received.target == "/v1/messages?beta=true"
            assert received.headers["authorization"] == f"Bearer {CREDENTIAL}"
            assert received.headers["anthropic-version"] == "2023-06-01"
            assert received.headers["anthropic-beta"] == "x"
            assert received.headers["user-agent"] == "cli/1"
            assert received.headers["accept-encoding"] == "identity"
            assert not {"x-api-key", "api-key", "cookie", "x-agensh-worker", "forwarded", "x-forwarded-for"} & set(
                received.headers
            )
            assert gateway.keys[ONE] not in str(received)


async def test_azure_and_a_model_server_of_ones_own(tmp_path: Path) -> None:
    values = {
        "auth": "api-key", "api_version": "2025-04-01-preview", "forward_worker": True, "headers": {"x-extra": "1"},
    }  # fmt: skip
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, **values) as gateway:
        await gateway.ask("/v1/responses?api-version=mine", {"model": "m"})
        (received,) = upstream.requests
        assert received.target == "/v1/responses?api-version=2025-04-01-preview"
        assert received.headers["api-key"] == CREDENTIAL
        assert "authorization" not in received.headers
        assert (received.headers["x-agensh-worker"], received.headers["x-extra"]) == (ONE, "1")


async def test_the_body_passes_byte_for_byte(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = b' {"model" : "m",\n "input":"\\u00e4", "x": 1.50, "stream": true}'
        headers = gateway.auth() | {"content-type": "application/json"}
        await gateway.http.post("/v1/responses", content=body, headers=headers)
        await gateway.http.post(
            "/v1/responses", content=gzip.compress(body), headers=headers | {"content-encoding": "gzip"}
        )
        assert [received.body for received in upstream.requests] == [body, body]
        refused = await gateway.http.post("/v1/responses", content=b"x", headers=headers | {"content-encoding": "zstd"})
        assert refused.status_code == 415


async def test_the_usage_of_a_chat_stream_is_asked_for_and_hidden(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        plain = {"model": "gpt-5.4", "stream": True, "messages": []}
        hidden = await gateway.ask("/v1/chat/completions", plain)
        shown = await gateway.ask("/v1/chat/completions", plain | {"stream_options": {"include_usage": True}})
        assert hidden.content == b"".join(chat_events(usage=False))
        assert shown.content == b"".join(chat_events())
        assert all(received.json["stream_options"] == {"include_usage": True} for received in upstream.requests)
        assert [row["state"] for row in await gateway.rows()] == ["metered", "metered"]


@pytest.mark.parametrize("path", WIRES)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529])
async def test_errors_pass_unchanged(tmp_path: Path, path: str, status: int) -> None:
    body = json.dumps({"type": "error", "error": {"type": "x", "message": "bad, bad"}}).encode()

    async def failing(received: Received, answer: Answer) -> None:
        headers = {"retry-after": "0", "x-request-id": "req_1", "content-type": "application/problem+json"}
        await answer.whole(status, body, headers)

    async with provider(failing) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        answered = await gateway.ask(path, {"model": "gpt-5.4", "stream": True})
        assert (answered.status_code, answered.content) == (status, body)
        assert answered.headers["retry-after"] == "0"
        assert answered.headers["x-request-id"] == "req_1"
        assert answered.headers["content-type"] == "application/problem+json"
        (row,) = await gateway.rows()
        assert (row["state"], row["status"], row["cost_usd"]) == ("failed", status, None)
        assert len(upstream.requests) == 1, "the gateway does not try again by itself"


async def test_an_error_that_repeats_the_credential_does_not_tell_it(tmp_path: Path) -> None:
    async def telling(received: Received, answer: Answer) -> None:
        await answer.json({"error": {"message": f"bad key {CREDENTIAL}"}}, 401)

    async with provider(telling) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        answered = await gateway.ask("/v1/responses", {"model": "m"})
        assert answered.json() == {"error": {"message": "bad key ***"}}


@pytest.mark.parametrize("path", WIRES)
async def test_every_event_comes_before_the_next_is_made(tmp_path: Path, path: str) -> None:
    turn = asyncio.Semaphore(0)

    async def stepwise(received: Received, answer: Answer) -> None:
        await answer.stream()
        for event in EVENTS[path]():
            await turn.acquire()
            await answer.write(event)
        await answer.end()

    async with provider(stepwise) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
        async with gateway.http.stream("POST", path, json=body, headers=gateway.auth()) as answered:
            assert answered.status_code == 200, "headers come before the first event"
            raw = answered.aiter_raw()
            for event in EVENTS[path]():
                turn.release()
                got = b""
                while len(got) < len(event):
                    got += await asyncio.wait_for(anext(raw), WAIT)
                assert got == event


@pytest.mark.parametrize("path", WIRES)
async def test_usage_is_committed_before_the_end_is_sent(tmp_path: Path, path: str) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = {"model": "gpt-5.4", "stream": True, "stream_options": {"include_usage": True}}
        seen = b""
        async with gateway.http.stream("POST", path, json=body, headers=gateway.auth()) as answered:
            async for piece in answered.aiter_raw():
                seen += piece
                if any(mark in seen for mark in (b'"response.completed"', b"[DONE]", b'"message_stop"')):
                    (row,) = await gateway.rows()
                    assert (row["state"], row["output_tokens"]) == ("metered", USAGE["output"])


@pytest.mark.parametrize("path", WIRES)
async def test_a_cut_stream_is_cut_for_the_worker_and_unmetered(tmp_path: Path, path: str) -> None:
    async def cutting(received: Received, answer: Answer) -> None:
        await answer.stream()
        for event in EVENTS[path]()[:3]:
            await answer.write(event)
        await asyncio.sleep(0.1)
        answer.cut()

    async with provider(cutting) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.ask(path, {"model": "claude-sonnet-4-5", "stream": True})
        await settled(gateway)
        (row,) = await gateway.rows()
        assert (row["state"], row["reason"]) == ("unmetered", "the provider cut the answer")
        told = path.endswith("/messages")  # its beginning tells the prompt
        assert row["input_tokens"] == (USAGE["input"] if told else 0)
        assert (row["cost_usd"] is not None) == told


async def test_a_stream_without_usage_is_unmetered(tmp_path: Path) -> None:
    async def silent(received: Received, answer: Answer) -> None:
        await answer.stream()
        for event in chat_events(usage=False):
            await answer.write(event)
        await answer.end()

    async with provider(silent) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        answered = await gateway.ask("/v1/chat/completions", {"model": "m", "stream": True})
        assert answered.content == b"".join(chat_events(usage=False))
        (row,) = await gateway.rows()
        assert (row["state"], row["reason"]) == ("unmetered", "the provider reported no usage")


async def test_a_worker_that_leaves_ends_the_providers_request(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def endless(received: Received, answer: Answer) -> None:
        await answer.stream()
        await answer.event({"choices": []})
        await answer.gone()
        ended.set()

    async with provider(endless) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = {"model": "m", "stream": True}
        async with gateway.http.stream("POST", "/v1/responses", json=body, headers=gateway.auth()) as answered:
            await anext(answered.aiter_raw())
        await asyncio.wait_for(ended.wait(), WAIT)
        await settled(gateway)
        (row,) = await gateway.rows()
        assert (row["state"], row["reason"]) == ("unmetered", "the client left")


async def test_a_worker_that_leaves_before_the_answer_ends_the_request_too(tmp_path: Path) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def silent(received: Received, answer: Answer) -> None:
        asked.set()
        await answer.gone()
        ended.set()

    async with provider(silent) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        asking = asyncio.create_task(gateway.ask("/v1/messages", {"model": "m"}))
        await asyncio.wait_for(asked.wait(), WAIT)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.wait_for(ended.wait(), WAIT)
        await settled(gateway)


async def test_a_slow_reader_slows_the_provider_down(tmp_path: Path) -> None:
    answers: list[Answer] = []
    piece = sse({"choices": [], "padding": "x" * 100_000})
    many = 400  # 40 MB; what is under way between the two may fill the buffers of two connections

    async def much(received: Received, answer: Answer) -> None:
        answers.append(answer)
        await answer.stream()
        for _ in range(many):
            await answer.write(piece)
        await answer.end()

    async with provider(much) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        body = {"model": "m", "stream": True}
        async with gateway.http.stream("POST", "/v1/responses", json=body, headers=gateway.auth()) as answered:
            raw = answered.aiter_raw()
            got = len(await anext(raw))
            before = -1
            while before != answers[0].sent:  # until it stands still
                before = answers[0].sent
                await asyncio.sleep(0.5)
            assert answers[0].sent < many * len(piece) / 2
            async for part in raw:
                got += len(part)
        assert got == many * len(piece)


async def test_a_provider_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    async with serving_gateway(tmp_path, "http://127.0.0.1:9/v1") as gateway:
        answered = await gateway.ask("/v1/messages", {"model": "m"})
        assert answered.status_code == 502
        assert answered.json()["error"]["code"] == "agensh_provider_unreachable"
        (row,) = await gateway.rows()
        assert (row["state"], row["reason"]) == ("failed", "agensh_provider_unreachable")


async def test_a_provider_that_closes_in_the_middle_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    async def close(received: Received, answer: Answer) -> None:
        answer.cut()

    async with provider(close) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        answer = await gateway.ask("/v1/responses", {"model": "m"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (502, "agensh_provider_unreachable")
        assert error["message"] == "The provider closed the connection before its answer was whole."


async def test_a_provider_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async def silent(received: Received, answer: Answer) -> None:
        if received.path.endswith("/responses"):
            await answer.stream()
            await answer.event({"x": 1})
        await answer.gone()

    async with provider(silent) as upstream, serving_gateway(tmp_path, upstream, idle_timeout=1.0) as gateway:
        before = await gateway.ask("/v1/messages", {"model": "m"})
        assert (before.status_code, before.json()["error"]["code"]) == (504, "agensh_provider_silent")
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.ask("/v1/responses", {"model": "m", "stream": True})
        await settled(gateway, 2)
        assert [row["state"] for row in await gateway.rows()] == ["failed", "unmetered"]


async def test_lists_and_counts_pass_and_cost_nothing(tmp_path: Path) -> None:
    values = {"models": ["gpt-5.4"], "budget_usd": 0.001}
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, **values) as gateway:
        counted = await gateway.ask("/v1/messages/count_tokens", {"model": "gpt-5.4"})
        assert counted.json() == {"input_tokens": 17}
        listed = await gateway.http.get("/v1/models?limit=5", headers=gateway.auth())
        assert [model["id"] for model in listed.json()["data"]] == ["gpt-5.4"]
        assert upstream.requests[-1].target == "/v1/models?limit=5"
        assert await gateway.rows() == []


@pytest.mark.parametrize("path", WIRES)
async def test_only_allowed_models_and_efforts(tmp_path: Path, path: str) -> None:
    values = {"models": ["gpt-5.4", "x"], "efforts": ["low"]}
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, **values) as gateway:
        other = await gateway.ask(path, {"model": "gpt-5.4-pro"})
        assert other.status_code == 403
        assert other.json()["error"]["message"] == (
            "model: 'gpt-5.4-pro' is not allowed in this run; it is one of gpt-5.4, x."
        )
        none = await gateway.ask(path, {})
        assert none.json()["error"]["message"] == "model: missing; it is one of gpt-5.4, x."
        for asked in (
            {"reasoning": {"effort": "high"}},
            {"reasoning_effort": "max"},
            {"output_config": {"effort": "x"}},
        ):
            dear = await gateway.ask(path, {"model": "gpt-5.4"} | asked)
            assert (dear.status_code, dear.json()["error"]["code"]) == (403, "agensh_effort_not_allowed")
        assert (await gateway.ask(path, {"model": "gpt-5.4", "background": True})).status_code == 400
        assert upstream.requests == []
        for fine in ({}, {"reasoning": {"effort": "low"}}):
            assert (await gateway.ask(path, {"model": "gpt-5.4"} | fine)).status_code == 200
        assert [row["state"] for row in await gateway.rows()] == ["refused"] * 6 + ["metered"] * 2


async def test_bodies_are_bounded(tmp_path: Path) -> None:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream, max_body=2000) as gateway:
        headers = gateway.auth()
        assert (await gateway.ask("/v1/responses", {"model": "m", "input": "x" * 3000})).status_code == 413
        bomb = gzip.compress(b'{"model":"' + b"x" * 1_000_000 + b'"}')
        answered = await gateway.http.post(
            "/v1/responses", content=bomb, headers=headers | {"content-encoding": "gzip"}
        )
        assert answered.status_code == 413
        for body in (b"", b"{", b"[]"):
            answered = await gateway.http.post("/v1/responses", content=body, headers=headers)
            assert (body, answered.status_code) == (body, 400)
        assert upstream.requests == []
