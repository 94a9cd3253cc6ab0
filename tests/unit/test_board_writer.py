"""Group commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from board_service.errors import Refusal
from board_service.writer import GroupWriter


class Sink:
    """Takes batches; waits at the gate, fails when told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.writing = asyncio.Event()
        self.failure: Exception | None = None

    async def write(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        self.writing.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return [item * 10 for item in items]


async def test_what_waits_is_written_together_and_each_gets_its_answer() -> None:
    sink = Sink()
    writer = GroupWriter(sink.write, room=100, batch=4)
    answers = [asyncio.create_task(writer.submit(item)) for item in range(7)]
    await sink.writing.wait()
    assert not any(answer.done() for answer in answers)  # nothing is answered before its commit
    sink.gate.set()
    assert await asyncio.gather(*answers) == [0, 10, 20, 30, 40, 50, 60]
    assert sink.batches == [[0, 1, 2, 3], [4, 5, 6]]
    await writer.aclose()


async def test_a_full_queue_refuses_at_once() -> None:
    sink = Sink()
    writer = GroupWriter(sink.write, room=2, batch=1)
    first = asyncio.create_task(writer.submit(1))
    await sink.writing.wait()  # the writer holds the first, two more fit
    more = [asyncio.create_task(writer.submit(item)) for item in (2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refused:
        await writer.submit(4)
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    sink.gate.set()
    assert await asyncio.gather(first, *more) == [10, 20, 30]
    await writer.aclose()


async def test_a_failed_batch_fails_its_own_only() -> None:
    sink = Sink()
    sink.gate.set()
    writer = GroupWriter(sink.write, room=9, batch=9)
    sink.failure = OSError("broken")
    with pytest.raises(OSError, match="broken"):
        await writer.submit(1)
    sink.failure = None
    assert await writer.submit(2) == 20
    await writer.aclose()


async def test_one_who_left_does_not_disturb_the_others() -> None:
    sink = Sink()
    writer = GroupWriter(sink.write, room=9, batch=9)
    gone, stays = asyncio.create_task(writer.submit(1)), asyncio.create_task(writer.submit(2))
    await sink.writing.wait()
    gone.cancel()
    sink.gate.set()
    assert await stays == 20
    await writer.aclose()
    assert sink.batches == [[1, 2]]


async def test_closing_writes_what_waits() -> None:
    sink = Sink()
    writer = GroupWriter(sink.write, room=9, batch=1)
    answers = [asyncio.create_task(writer.submit(item)) for item in (1, 2)]
    await asyncio.sleep(0)
    sink.gate.set()
    await writer.aclose()
    assert await asyncio.gather(*answers) == [10, 20]
