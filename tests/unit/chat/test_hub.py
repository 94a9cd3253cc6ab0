"""Who hears an event, and when a dead connection is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from agensh.embedded.chat.connection import SEND_QUEUE, Connection, Event
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.hub import REAP_EVERY, Hub
from agensh.embedded.chat.model import Channel, ChannelMember, TeamMember, Token, User
from tests.support.clock import ManualClock


def _hub(*names: str) -> tuple[Hub, Directory, ManualClock, dict[str, Connection]]:
    """Return a hub with one connection for each user."""
    directory, clock = Directory(), ManualClock()
    hub = Hub(directory, clock)
    connections = {}
    for name in names:
        directory.add_user(User(name, 0, 0, name, f"{name}@x", "system_user"))
        directory.add_token(Token(f"hash-{name}", f"token-{name}", name, 0))
        connections[name] = Connection(user_id=name, token_hash=f"hash-{name}")
        hub.add(connections[name])
    directory.add_channel(Channel("c", 0, 0, "t", "O", "c", "C", "a"))
    for name in ("a", "b"):
        directory.add_channel_member(ChannelMember("c", name, 0))
        directory.team_members["t"][name] = TeamMember("t", name, 0)
    directory.team_members["t"]["c"] = TeamMember("t", "c", 0)
    return hub, directory, clock, connections


@pytest.mark.parametrize(
    ("target", "heard"),
    [
        ({"channel_id": "c"}, {"a", "b"}),
        ({"channel_id": "c", "omit_users": ["a"]}, {"b"}),
        ({"channel_id": "c", "user_id": "d"}, {"d"}),
        ({"channel_id": "c", "team_id": "t"}, {"a", "b"}),
        ({"team_id": "t"}, {"a", "b", "c"}),
        ({}, {"a", "b", "c", "d"}),
    ],
)
def test_the_filter_is_user_then_channel_then_team_then_everybody(target: dict[str, Any], heard: set[str]) -> None:
    hub, _, _, connections = _hub("a", "b", "c", "d")
    hub.publish("posted", {"x": 1}, **target)
    assert {name for name, connection in connections.items() if connection.waiting} == heard


def test_one_encoding_serves_all_receivers() -> None:
    hub, _, _, connections = _hub("a", "b")
    hub.publish("posted", {"x": 1}, channel_id="c")
    assert connections["a"].waiting[0] is connections["b"].waiting[0]


def test_extra_data_is_for_its_receiver_alone() -> None:
    hub, _, _, connections = _hub("a", "b")
    hub.publish("posted", {"x": 1}, channel_id="c", extra={"b": {"mentions": "[]"}})
    frames = {name: connection.waiting[0] for name, connection in connections.items()}
    assert isinstance(frames["a"], Event)
    assert isinstance(frames["b"], Event)
    assert "mentions" not in frames["a"].numbered(1)
    assert "mentions" in frames["b"].numbered(1)


def test_a_connection_that_does_not_keep_up_is_forgotten() -> None:
    hub, _, _, connections = _hub("a", "b")
    for _ in range(SEND_QUEUE + 1):
        hub.publish("posted", {"x": 1}, user_id="a")
    assert connections["a"].cut
    assert not connections["a"].active
    assert hub.take_dead("a", connections["a"].id) is None
    assert not hub.is_online("a")
    assert hub.is_online("b")


async def test_a_session_hears_nothing_once_it_is_revoked_expired_disabled_or_its_owner_gone() -> None:
    hub, directory, clock, connections = _hub("a", "b", "c", "d")
    directory.drop_token(directory.tokens["hash-a"])
    directory.tokens["hash-b"].expires_at = int((clock.time() + 60) * 1000)
    directory.tokens["hash-c"].is_active = False
    directory.users["d"].delete_at = 1
    hub.publish("new_user", {"user_id": "x"})
    assert {name for name, connection in connections.items() if connection.waiting} == {"b"}
    await clock.advance(61)
    hub.publish("new_user", {"user_id": "x"})
    assert len(connections["b"].waiting) == 1


async def test_the_reaper_drops_the_dead_connections_of_the_silent() -> None:
    hub, _, clock, connections = _hub("a", "b", "c")
    connections["a"].active = connections["b"].active = False
    await clock.advance(REAP_EVERY)
    hub.touch("b")
    await clock.advance(1)
    hub.reap()
    assert hub.take_dead("a", connections["a"].id) is None, "dead and silent for five minutes"
    assert hub.take_dead("b", connections["b"].id) is connections["b"], "its user was active since"
    assert hub.is_online("c"), "alive, however silent"
