"""The push channels of a node host under faults of the network: noticed in time, nothing lost, nothing twice, one line.

Each fault is made by a proxy between a real service and what hears it: the board's feed, the chat's listener (websocket
and REST), the forge's listener (server-sent events and REST).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

from agensh.clients import board as board_client
from agensh.clients import gitea_events, http, mattermost_ws
from router.feed import RECONNECT_CEILING
from tests.support.chaos import either, named_once, records_of
from tests.support.clock import HastyClock
from tests.support.queues import until
from tests.support.stations import STATIONS, BoardStation, Station, Team, another_team, provisioned_team, station
from tests.support.tcp_proxy import Mode

SILENCE = 1.5  # seconds; in place of those of the product, which are 40 to 120


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with provisioned_team(tmp_path_factory.mktemp("services"), heartbeat_seconds=0.2) as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Let the bounds of the product be short."""
    for logger in ("httpx", "httpcore", "websockets"):
        caplog.set_level(logging.WARNING, logger)
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(board_client, "STREAM_SILENCE", SILENCE)
    for module, names in (
        (gitea_events, ("SILENCE", "OPEN_TIMEOUT")),
        (mattermost_ws, ("PONG_WAIT", "OPEN_TIMEOUT")),
        (http, ("LONGEST_ANSWER",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, SILENCE)
    monkeypatch.setattr(mattermost_ws, "CLOSE_TIMEOUT", 0.2)
    monkeypatch.setattr(mattermost_ws, "PING_INTERVAL", SILENCE * 1.2)
    monkeypatch.setattr(http, "TIMEOUT", httpx.Timeout(SILENCE))


NOTICED = {
    "board": "nothing came for 1.5 s",
    "chat": "no answer to a ping within 1.5 s",
    "forge": "nothing came for 1.5 s",
}
"""What the log says of a connection on which nothing moves."""


def no_traces(caplog: pytest.LogCaptureFixture) -> None:
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def is_live(place: Station) -> None:
    await until(lambda: place.live, f"the {place.name} is heard")


@pytest.mark.parametrize("mode", either([Mode.STALL, Mode.TRICKLE], list(Mode)[1:]))
@pytest.mark.parametrize("kind", STATIONS)
async def test_a_connection_on_which_nothing_moves_is_noticed(
    team: Team, kind: str, mode: Mode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with station(kind, team, tmp_path) as place:
        await is_live(place)
        await place.speak()
        await place.all_heard()
        caplog.clear()
        place.proxy.trickle_every = SILENCE / 3
        place.proxy.mode = mode
        await place.speak(2)
        await until(lambda: not place.live, "the silence is noticed")
        await place.speak(2)
        place.proxy.mode = Mode.PASS
        await place.all_heard()
        await is_live(place)
        await place.speak()
        await place.all_heard()
    named_once(records_of(caplog.records), NOTICED[kind])
    no_traces(caplog)


CUTS: list[list[int]] = either(
    [[1, 60, 0, 200]], [[1, 60, 0, 200], [9, 9, 9], [300, 2, 40, 120, 5], [150], [17, 90], [511, 30, 4]]
)
"""How many bytes of a piece get through before its connection is cut, piece by piece."""


@pytest.mark.parametrize("kind", STATIONS)
async def test_a_connection_that_is_cut_in_the_middle_of_a_piece_loses_and_doubles_nothing(
    team: Team, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with station(kind, team, tmp_path) as place:
        await is_live(place)
        for lengths in CUTS:
            place.proxy.cut_within(*lengths)
            while place.proxy.cuts_left:
                await place.speak()
                left = place.proxy.cuts_left
                await until(lambda left=left: place.proxy.cuts_left < max(1, left), "a piece was cut")  # type: ignore[misc]
            await place.speak(3)
            await place.all_heard()
        await is_live(place)
    no_traces(caplog)


def refusal(status: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "content-length: 5", "connection: close", *headers, "", "later"]
    return "\r\n".join(lines).encode()


def by_date(seconds: float) -> tuple[str, str]:
    """A wish as a date, of a server whose clock is a day behind."""
    now = 1_790_000_000.0
    return f"date: {formatdate(now, usegmt=True)}", f"retry-after: {formatdate(now + seconds, usegmt=True)}"


@pytest.mark.parametrize("kind", STATIONS)
async def test_a_service_that_asks_for_a_wait_gets_it_and_one_line_says_so(
    team: Team, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HastyClock()
    async with station(kind, team, tmp_path, clock) as place:
        await is_live(place)
        caplog.clear()
        clock.waits.clear()
        place.proxy.answers.extend([refusal("503 Service Unavailable", "retry-after: 41")] * 3)
        place.proxy.answers.extend([refusal("429 Too Many Requests", *by_date(52))] * 2)
        place.proxy.cut()
        await place.speak(2)
        await until(lambda: not place.proxy.answers, "all refusals were met")
        await place.all_heard()
        await is_live(place)
    lines = records_of(caplog.records)
    assert named_once(lines, "answered 503").level != "error"
    named_once(lines, "answered 429")
    asked = [wait for wait in clock.waits if wait >= 41]
    assert 5 <= len(asked) <= 10, clock.waits
    assert sum(wait >= 52 for wait in asked) >= 2, clock.waits
    assert max(asked) <= 52 + RECONNECT_CEILING, clock.waits
    no_traces(caplog)


REFUSED = {"board": "board answered 401", "chat": "401", "forge": "does not accept the password"}


@pytest.mark.parametrize("kind", STATIONS)
async def test_a_token_that_is_revoked_while_connected_is_named_once_and_asked_with_seldom(
    team: Team, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HastyClock()
    async with station(kind, await another_team(team, tmp_path, f"gone-{kind}"), tmp_path, clock) as place:
        await is_live(place)
        await place.speak()
        await place.all_heard()
        caplog.clear()
        clock.waits.clear()
        await place.revoke()
        if kind == "forge":
            place.proxy.cut()  # an open stream of the forge outlives its session
        await until(lambda: not place.live, "the refusal is noticed")
        accepted = place.proxy.accepted
        await until(lambda: len(clock.waits) >= 12, "it asked again and again")
        assert place.task is not None
        assert not place.task.done()
        assert place.proxy.accepted - accepted <= len(clock.waits) + 2
    lines = [line for line in records_of(caplog.records) if line.message in {"push refused", "board stream is cut"}]
    named_once(lines, REFUSED[kind])
    no_traces(caplog)


async def test_a_host_whose_first_token_is_revoked_reads_the_board_with_the_next(
    team: Team, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoardStation, "most_tokens", 2)
    async with station("board", await another_team(team, tmp_path, "first-gone"), tmp_path) as place:
        await is_live(place)
        await place.speak(2)
        await place.all_heard()
        await place.revoke()
        await place.speak(2)
        await place.all_heard()
        await is_live(place)
    named_once(records_of(caplog.records), "board answered 401")
    no_traces(caplog)
