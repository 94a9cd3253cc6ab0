"""Reading tokens out of streams that are cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agensh.gateway.usage import Meter, Tokens, read_body, read_usage
from agensh.gateway.wires import Wire
from tests.support.provider import chat_events, messages_events, messages_usage, responses_events, sse

STREAMS = {Wire.CHAT: chat_events, Wire.RESPONSES: responses_events, Wire.MESSAGES: messages_events}
USED = {
    Wire.CHAT: Tokens(1000, 600, 0, 50, 20),
    Wire.RESPONSES: Tokens(1000, 600, 0, 50, 20),
    Wire.MESSAGES: Tokens(1000, 600, 0, 50, 0),
}


def fed(meter: Meter, data: bytes, cuts: list[int]) -> bytes:
    """Feed a stream in pieces; return what comes out."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join(meter.feed(data[a:b]) for a, b in pairwise(edges)) + meter.rest()


@pytest.mark.parametrize("wire", STREAMS)
@given(cuts=st.lists(st.integers(0, 5000), max_size=40), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_however_a_stream_is_cut_its_tokens_are_found_and_it_passes_unchanged(wire, cuts, ending):
    data = b"".join(STREAMS[wire]()).replace(b"\n", ending)
    meter = Meter(wire)
    assert fed(meter, data, cuts) == data
    assert (meter.tokens, meter.complete, meter.final) == (USED[wire], True, True)


@given(cuts=st.lists(st.integers(0, 5000), max_size=40), ending=st.sampled_from([b"\n", b"\r\n"]))
def test_the_chunk_that_a_client_did_not_ask_for_is_hidden(cuts, ending):
    with_usage, without = (b"".join(chat_events(usage=usage)).replace(b"\n", ending) for usage in (True, False))
    meter = Meter(Wire.CHAT, hide_usage=True)
    assert fed(meter, with_usage, cuts) == without
    assert meter.tokens == USED[Wire.CHAT]


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=10), hide=st.booleans())
def test_whatever_a_provider_sends_comes_through(data, cuts, hide):
    meter = Meter(Wire.CHAT, hide_usage=hide)
    assert fed(meter, data, cuts) == data


def test_the_end_is_known_before_its_bytes_are_sent_on():
    for wire, events in STREAMS.items():
        meter = Meter(wire)
        finals = []
        for event in events():
            meter.feed(event)
            finals.append(meter.final)
        # Chat tells the usage one event before [DONE].
        last = len(finals) - (2 if wire is Wire.CHAT else 1)
        assert finals.index(True) == last


def test_a_text_that_speaks_of_usage_is_no_usage():
    text = '{"usage": {"prompt_tokens": 7, "completion_tokens": 7}} "usage" message_stop [DONE]'
    for wire, events in STREAMS.items():
        meter = Meter(wire)
        for event in events((text, text))[:-2]:
            meter.feed(event)
        assert not meter.final
        assert not meter.complete or wire is Wire.MESSAGES


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_a_response_has_its_usage_however_it_ended(status):
    usage = {"input_tokens": 5, "output_tokens": 3} if status != "failed" else None
    meter = Meter(Wire.RESPONSES)
    meter.feed(sse({"response": {"model": "m", "usage": usage}, "type": f"response.{status}"}))
    assert meter.final
    assert meter.complete == (status != "failed")
    assert meter.tokens == (Tokens(5, output=3) if status != "failed" else None)


def test_a_cut_message_keeps_what_its_beginning_told():
    meter = Meter(Wire.MESSAGES)
    for event in messages_events()[:4]:
        meter.feed(event)
    assert (meter.tokens, meter.complete, meter.final) == (Tokens(1000, 600, 0, 1), False, False)


def test_the_cache_is_part_of_the_input_on_every_wire():
    usage = messages_usage(9) | {"cache_creation_input_tokens": 30}
    assert read_usage(Wire.MESSAGES, usage) == Tokens(1030, 600, 30, 9)


@pytest.mark.parametrize("usage", [None, [], "x", 3, True])
def test_what_is_no_usage_is_none(usage):
    for wire in STREAMS:
        assert read_usage(wire, usage) is None


@pytest.mark.parametrize("value", [None, -1, True, "7", 1.5, 2**60, {}, []])
def test_what_is_no_count_is_zero(value: Any):
    assert read_usage(Wire.CHAT, {"prompt_tokens": value, "completion_tokens": 2}) == Tokens(output=2)
    assert read_usage(Wire.CHAT, {"prompt_tokens": 1, "prompt_tokens_details": value}) == Tokens(1)


def test_a_body_tells_tokens_and_model():
    usage = {"input_tokens": 4, "output_tokens": 2}
    assert read_body(Wire.MESSAGES, json.dumps({"model": "m", "usage": usage}).encode()) == (Tokens(4, output=2), "m")
    for body in (b"", b"[]", b"{", b'{"usage": 1}'):
        assert read_body(Wire.MESSAGES, body)[0] is None


def test_an_event_without_end_is_passed_on_and_not_kept(monkeypatch):
    monkeypatch.setattr("agensh.gateway.usage.MOST_EVENT", 1000)
    for hide in (False, True):
        meter = Meter(Wire.CHAT, hide_usage=hide)
        out = b"".join(meter.feed(b"x" * 100) for _ in range(30)) + meter.rest()
        assert out == b"x" * 3000
        assert not meter.complete
