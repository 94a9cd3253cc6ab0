"""Fan-out of events to websocket connections.

One hub: every user sees events in the order in which they were published. An event is encoded once, whatever the
number of receivers. Publishing never waits; a connection that does not keep up is cut.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from agensh.clock import Clock
from agensh.embedded.chat.connection import Connection, Event, TooSlow
from agensh.embedded.chat.directory import Directory

log = logging.getLogger(__name__)

REAP_EVERY = 300.0
"""Seconds between two rounds of the reaper; also how long a user must have been silent."""


class Hub:
    """All connections, dead ones that may be resumed included."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._by_user: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._activity: dict[str, float] = {}

    def touch(self, user_id: str) -> None:
        """Note that a user connected or used the API."""
        self._activity[user_id] = self._clock.monotonic()

    def is_online(self, user_id: str) -> bool:
        """Say whether a user has a live connection."""
        return any(connection.active for connection in self._by_user.get(user_id, ()))

    def add(self, connection: Connection) -> None:
        """Deliver to a connection from now on."""
        self._by_user[connection.user_id][connection] = None
        self.touch(connection.user_id)

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        mine = self._by_user.get(connection.user_id)
        if mine is not None:
            mine.pop(connection, None)
            if not mine:
                del self._by_user[connection.user_id]

    def take_dead(self, user_id: str, connection_id: str) -> Connection | None:
        """Remove and return the connection of that id if it is known to be dead."""
        for connection in self._by_user.get(user_id, ()):
            if connection.id == connection_id and not connection.active:
                self.remove(connection)
                return connection
        return None

    def publish(
        self,
        name: str,
        data: dict[str, Any],
        *,
        channel_id: str = "",
        team_id: str = "",
        user_id: str = "",
        omit_users: Iterable[str] = (),
        extra: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """Send an event to a user, else the members of a channel, else those of a team, else everybody.

        `extra` adds data to the event for single users.
        """
        omitted = set(omit_users)
        broadcast: dict[str, object] = {
            "omit_users": dict.fromkeys(omitted, True) or None,
            "user_id": user_id,
            "channel_id": channel_id,
            "team_id": team_id,
            "connection_id": "",
            "omit_connection_id": "",
        }
        event = Event.of(name, data, broadcast)
        for receiver in self._receivers(channel_id, team_id, user_id):
            if receiver in omitted or receiver not in self._by_user:
                continue
            mine = event
            if extra and receiver in extra:
                mine = event.with_data(extra[receiver])
            for connection in list(self._by_user[receiver]):
                self.offer(connection, mine)

    def _receivers(self, channel_id: str, team_id: str, user_id: str) -> list[str]:
        if user_id:
            return [user_id]
        if channel_id:
            return list(self._directory.channel_members.get(channel_id, ()))
        if team_id:
            return [member.user_id for member in self._directory.members_of_team(team_id)]
        return list(self._by_user)

    def offer(self, connection: Connection, item: Event | str) -> None:
        """Queue an event or a reply for a connection, and cut it when it does not keep up.

        A connection whose session was revoked gets no event any more, and is not told.
        """
        if isinstance(item, Event) and not self.session_is_valid(connection):
            return
        try:
            connection.offer(item)
        except TooSlow:
            if connection.active:
                log.warning("websocket cut: too slow", extra={"user_id": connection.user_id})
            self.remove(connection)
            connection.stop()

    def session_is_valid(self, connection: Connection) -> bool:
        """Say whether the session that opened the connection still holds."""
        token = self._directory.tokens.get(connection.token_hash)
        if token is None or not token.is_active or self._directory.users[token.user_id].delete_at:
            return False
        return not token.expires_at or token.expires_at > self._clock.time() * 1000

    def reap(self) -> None:
        """Drop dead connections of users that were silent for five minutes."""
        limit = self._clock.monotonic() - REAP_EVERY
        for connections in list(self._by_user.values()):
            for connection in list(connections):
                if not connection.active and self._activity.get(connection.user_id, 0.0) < limit:
                    self.remove(connection)

    async def run_reaper(self) -> None:
        """Reap every five minutes, until cancelled."""
        while True:
            await self._clock.sleep(REAP_EVERY)
            self.reap()
