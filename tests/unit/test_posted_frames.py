"""A post of the chat is read once, however many sockets bring it."""

from __future__ import annotations

import pytest

from agensh.clients.mattermost_ws import ChatSignal, PostedFrames

SIGNAL = ChatSignal("posted", channel_id="c")


@pytest.mark.parametrize("shape", ['{{"event":"posted","data":{{}},"seq":{}}}', '{{"event": "posted", "seq": {}}}'])
def test_frames_that_differ_in_their_number_only_are_known(shape: str) -> None:
    frames = PostedFrames()
    assert frames.find(shape.format(3)) is None
    frames.keep(shape.format(3), SIGNAL)
    assert frames.find(shape.format(41)) == (SIGNAL, 41)


def test_other_words_are_not_known() -> None:
    frames = PostedFrames()
    frames.keep('{"event":"posted","data":{"post":"a"},"seq":3}', SIGNAL)
    assert frames.find('{"event":"posted","data":{"post":"b"},"seq":3}') is None
    assert frames.find('{"event":"posted","data":{"post":"a"},"seq":3,"more":1}') is None
    assert frames.find("no json") is None


def test_the_oldest_gives_way() -> None:
    frames = PostedFrames(most=2)
    for number in range(3):
        frames.keep(f'{{"post":"{number}","seq":1}}', SIGNAL)
    assert [frames.find(f'{{"post":"{number}","seq":1}}') is None for number in range(3)] == [True, False, False]
