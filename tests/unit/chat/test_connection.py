"""Queues and numbering of a websocket connection."""

from __future__ import annotations

import asyncio
import json

import pytest

from agensh.embedded.chat.connection import DEAD_QUEUE, DROP_TYPING_ABOVE, SEND_QUEUE, Connection, Event, TooSlow


def _event(name: str = "posted", **data: object) -> Event:
    return Event.of(name, {"n": 0, **data}, {"user_id": ""})


def _sent(connection: Connection, count: int) -> None:
    """Let `count` events go out."""

    async def run() -> None:
        frames: list[str] = []

        async def send(frame: str) -> None:
            frames.append(frame)
            if len(frames) == count:
                connection.stop()

        for _ in range(count):
            connection.offer(_event())
        await connection.write(send)
        connection.cut = False

    asyncio.run(run())


def test_a_frame_is_valid_json_in_the_real_order() -> None:
    frame = _event(text='a "quoted" 🦊').with_data({"mentions": '["x"]'}).numbered(7)
    assert json.loads(frame) == {
        "event": "posted",
        "data": {"n": 0, "text": 'a "quoted" 🦊', "mentions": '["x"]'},
        "broadcast": {"user_id": ""},
        "seq": 7,
    }
    assert list(json.loads(frame)) == ["event", "data", "broadcast", "seq"]


def test_256_frames_may_wait_and_no_more() -> None:
    connection = Connection()
    for _ in range(SEND_QUEUE):
        connection.offer(_event())
    with pytest.raises(TooSlow):
        connection.offer(_event())
    with pytest.raises(TooSlow):
        connection.offer('{"status":"OK"}')


def test_events_of_low_worth_are_dropped_under_load() -> None:
    connection = Connection()
    connection.offer(_event("typing"))
    for _ in range(DROP_TYPING_ABOVE):
        connection.offer(_event())
    before = len(connection.waiting)
    connection.offer(_event("typing"))
    connection.offer(_event("multiple_channels_viewed"))
    assert len(connection.waiting) == before
    connection.offer(_event())
    assert len(connection.waiting) == before + 1


def test_replies_are_not_numbered() -> None:
    async def run() -> list[str]:
        connection, frames = Connection(), []

        async def send(frame: str) -> None:
            frames.append(frame)
            if len(frames) == 3:
                connection.stop()

        connection.offer(_event())
        connection.offer('{"status":"OK","seq_reply":1}')
        connection.offer(_event())
        await connection.write(send)
        return frames

    frames = [json.loads(frame) for frame in asyncio.run(run())]
    assert [frame.get("seq") for frame in frames] == [0, None, 1]


@pytest.mark.parametrize(
    ("sent", "expected", "repeated"),
    [
        (5, 5, []),  # all seen
        (5, 3, [3, 4]),
        (5, 0, []),  # the trap
        (5, 6, None),  # a number that was never sent
        (DEAD_QUEUE, 0, []),
        (DEAD_QUEUE + 10, 10, list(range(10, DEAD_QUEUE + 10))),  # the oldest that is kept
        (DEAD_QUEUE + 10, 9, None),
        (0, 4, []),  # nothing was sent: no loss can be told
    ],
)
def test_a_resume_repeats_what_was_not_seen_or_admits_the_gap(
    sent: int, expected: int, repeated: list[int] | None
) -> None:
    connection = Connection()
    if sent:
        _sent(connection, sent)
    found = connection.resume(expected)
    assert (found if found is None else [json.loads(frame)["seq"] for frame in found]) == repeated
    if expected == 0:
        assert connection.next_seq == 0


def test_an_event_that_failed_to_go_out_is_repeated() -> None:
    async def run() -> list[str] | None:
        connection = Connection()
        sent = 0

        async def send(frame: str) -> None:
            nonlocal sent
            sent += 1
            if sent == 3:
                raise OSError("reset")

        for _ in range(4):
            connection.offer(_event())
        with pytest.raises(OSError, match="reset"):
            await connection.write(send)
        assert len(connection.waiting) == 1
        return connection.resume(2)

    assert [json.loads(frame)["seq"] for frame in asyncio.run(run()) or []] == [2]
