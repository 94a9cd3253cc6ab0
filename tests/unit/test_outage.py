"""One line when something fails, one when it works again."""

from __future__ import annotations

import logging
import sqlite3

import pytest

from agensh.outage import FORGET, QUIET, Outage, no_room
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def outage(clock: ManualClock) -> Outage:
    return Outage(logging.getLogger("outage"), clock, "it works again")


async def test_each_outage_has_two_lines(outage: Outage, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    outage.worked()
    for _ in range(3):
        for at in ("reading", "writing"):
            outage.failed("it is away", "first line\nand more", at=at)
    outage.worked("reading")
    assert caplog.messages == ["it is away"]
    assert caplog.records[0].error == "first line"  # type: ignore[attr-defined]
    await clock.advance(2)
    outage.worked("writing")
    assert caplog.messages == ["it is away", "it works again"]
    assert (caplog.records[1].failures, caplog.records[1].after_seconds) == (6, 2.0)  # type: ignore[attr-defined]
    await clock.advance(QUIET)
    outage.failed("it is away", "again")
    assert caplog.messages[2:] == ["it is away"]


async def test_what_comes_and_goes_is_told_once(
    outage: Outage, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        outage.failed("the disk is full", "x")
        outage.worked()
        await clock.advance(1)
    assert caplog.messages == ["the disk is full", "it works again"]
    outage.failed("it is away", "x")
    assert caplog.messages[2:] == ["it is away"], "another kind of trouble"
    await clock.advance(FORGET + 1)
    outage.failed("it is away", "x")
    assert caplog.messages[2:] == ["it is away", "it is away"]


def test_a_full_disk_is_told_from_other_errors() -> None:
    assert no_room(OSError(28, "no space"))
    assert not no_room(OSError(2, "no such file"))
    assert not no_room(sqlite3.OperationalError("no such table"))
    assert not no_room(ValueError())
