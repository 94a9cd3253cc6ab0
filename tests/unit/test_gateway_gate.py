"""The way to the provider: places, their order, pauses."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from agensh.gateway.gate import Gate
from agensh.gateway.wires import Refusal

LONG = 60.0


def flat(low: float, high: float) -> float:
    return low


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_more_than_its_places_and_in_order():
    gate = Gate(2, 10, LONG)
    order: list[int] = []
    let_go = asyncio.Event()

    async def one(number: int) -> None:
        async with gate.place():
            order.append(number)
            assert gate.running <= 2
            await let_go.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(one(number))
        await settle()
        assert (order, gate.running, gate.waiting) == ([0, 1], 2, 4)
        let_go.set()
    assert order == [0, 1, 2, 3, 4, 5]
    assert (gate.running, gate.waiting) == (0, 0)


async def test_a_full_queue_refuses_with_a_wait():
    gate = Gate(1, 1, LONG)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(gate.place())
        waiting = asyncio.create_task(_hold(gate))
        await settle()
        with pytest.raises(Refusal, match="Too many requests wait") as caught:
            await _hold(gate)
        assert caught.value.status == 429
        assert caught.value.retry_after is not None
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert gate.waiting == 0


async def test_patience_ends():
    gate = Gate(1, 5, 0.01)
    async with gate.place():
        with pytest.raises(Refusal, match="in time"):
            await _hold(gate)
    await _hold(gate)
    assert (gate.running, gate.waiting) == (0, 0)


async def test_one_that_leaves_the_queue_takes_no_place():
    gate = Gate(1, 5, LONG)
    async with gate.place():
        first, second = asyncio.create_task(_hold(gate)), asyncio.create_task(_hold(gate))
        await settle()
        first.cancel()
        await settle()
    await second
    assert (gate.running, gate.waiting) == (0, 0)


async def test_cancelled_in_the_moment_its_place_comes():
    gate = Gate(1, 5, LONG)
    async with gate.place():
        waiting = asyncio.create_task(_hold(gate))
        await settle()
    waiting.cancel()  # its place came with the line above, and it has not run since
    await asyncio.gather(waiting, return_exceptions=True)
    assert (gate.running, gate.waiting) == (0, 0)
    await _hold(gate)


async def test_a_pause_holds_everybody_and_then_lets_half_through():
    gate = Gate(8, 100, LONG, uniform=flat)
    running: list[int] = []

    async def one() -> None:
        async with gate.place():
            running.append(gate.running)
            await asyncio.sleep(0)

    gate.slow_down(0.05)
    gate.slow_down(0.05)  # an answer that was under way at the same time: no second halving
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(one())
        await settle()
        assert running == []
    assert asyncio.get_running_loop().time() - began >= 0.05
    assert max(running) == 4
    for _ in range(4):
        gate.went_well()
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(gate.place())
        assert gate.running == 8


async def test_a_pause_longer_than_anybodys_patience_is_told_with_a_spread():
    gate = Gate(8, 100, 1.0)
    gate.slow_down(100.0)
    waits = set()
    for _ in range(20):
        with pytest.raises(Refusal, match="asked for a pause") as caught:
            await _hold(gate)
        assert caught.value.retry_after is not None
        assert 99 < caught.value.retry_after <= 125
        waits.add(caught.value.retry_after)
    assert len(waits) == 20


async def test_without_a_word_of_the_provider_pauses_grow():
    gate = Gate(8, 100, LONG, uniform=lambda low, high: high)
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(3):
        gate._until = 0.0
        gate.slow_down(None)
        found.append(round(gate._until - loop.time()))
    assert found == [1, 2, 4]


async def _hold(gate: Gate) -> None:
    async with gate.place():
        await asyncio.sleep(0)
