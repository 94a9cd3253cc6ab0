"""The event stream `/user/events`: a wake-up that may be lost.

Counts only, at most one a user and tick, through a channel of one: what does not fit is dropped. No ids, no replay, no
first count. A client that was away must ask `/notifications`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from agensh.embedded.forge.store.database import Tx, marks

if TYPE_CHECKING:
    from agensh.embedded.forge.state import Forge

CHUNK = 500  # users in one query


class EventHub:
    """Who listens, and whose notifications changed since the last tick."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._channels: dict[int, set[asyncio.Queue[bytes | None]]] = {}
        self._dirty: set[int] = set()
        self._lock = threading.Lock()
        self.closing = False

    def touched(self, users: set[int]) -> None:
        """Note users whose rows changed; called by the database's writer thread after the commit."""
        with self._lock:
            self._dirty |= users

    def close(self) -> None:
        """End all streams, and every one that comes."""
        self.closing = True
        for channels in self._channels.values():
            for channel in channels:
                if channel.full():
                    channel.get_nowait()
                channel.put_nowait(None)

    async def run(self) -> None:
        """Push the counts, tick by tick, until cancelled."""
        while True:
            await self._forge.clock.sleep(self._forge.settings.event_source_update_time)
            with self._lock:
                dirty, self._dirty = self._dirty, set()
            listening = sorted(dirty & self._channels.keys())
            for at in range(0, len(listening), CHUNK):
                await self._push(listening[at : at + CHUNK])

    async def _push(self, users: list[int]) -> None:
        sql = (
            "SELECT user_id, sum(status = 'unread') FROM notifications "
            f"WHERE user_id IN ({marks(users)}) GROUP BY user_id"
        )

        def counts(tx: Tx) -> list[tuple[int, int]]:
            return [(row[0], row[1]) for row in tx.all(sql, *users)]

        for user_id, count in await self._forge.db.read(counts):
            data = json.dumps({"UserID": user_id, "Count": count}, separators=(",", ":"))
            message = f"event: notification-count\ndata: {data}\n\n".encode()
            for channel in self._channels.get(user_id, ()):
                if not channel.full():
                    channel.put_nowait(message)

    async def stream(self, user_id: int) -> AsyncIterator[bytes]:
        """Yield the bytes of one connection until the client goes or the forge stops."""
        channel: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._channels.setdefault(user_id, set()).add(channel)
        try:
            yield b"\n"
            while not self.closing:
                try:
                    async with asyncio.timeout(self._forge.settings.ping_interval):
                        message = await channel.get()
                except TimeoutError:
                    yield b"event: ping\n\n"
                    continue
                if message is None:
                    return
                yield message
        finally:
            channels = self._channels[user_id]
            channels.discard(channel)
            if not channels:
                del self._channels[user_id]
