"""One websocket connection: its queues, its numbering, and what a reconnecting client may take over.

Delivery: events are numbered from 0 (hello) when they are sent. Up to 256 wait unsent; one more cuts the connection
for good. The last 128 sent are kept: a client that comes back under the connection's id with the next number it
expects gets the rest, without a gap or a repeat, or a new connection with a hello when the server cannot promise that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.shapes import dumps

SEND_QUEUE = 256
"""Frames that may wait unsent."""
DEAD_QUEUE = 128
"""Sent events kept for a resume."""
DROP_TYPING_ABOVE = 128
"""From this many waiting frames on, events of low worth are dropped."""
LOW_WORTH = {"typing", "status_change", "multiple_channels_viewed"}


@dataclass(frozen=True, slots=True)
class Event:
    """An encoded event up to its number: encoded once, sent to many."""

    name: str
    head: str
    """Up to the end of the data."""
    tail: str
    """From there up to the number."""

    @classmethod
    def of(cls, name: str, data: dict[str, object], broadcast: dict[str, object]) -> Event:
        """Encode an event."""
        return cls(name, f'{{"event":"{name}","data":{dumps(data)[:-1]}', f'}},"broadcast":{dumps(broadcast)},"seq":')

    def with_data(self, more: dict[str, object]) -> Event:
        """Return the same event with further data for one receiver."""
        return Event(self.name, f"{self.head},{dumps(more)[1:-1]}", self.tail)

    def numbered(self, seq: int) -> str:
        """Return the frame."""
        return f"{self.head}{self.tail}{seq}}}"


class TooSlow(Exception):
    """The peer did not read: 256 frames wait for it."""


@dataclass(slots=True, eq=False)
class Connection:
    """State of a connection; it outlives its socket as long as it may be resumed."""

    id: str = field(default_factory=new_id)
    user_id: str = ""
    """Empty until authenticated."""
    token_hash: str = ""
    active: bool = True
    """Whether a socket is believed to be alive at the other end."""
    next_seq: int = 0
    waiting: deque[Event | str] = field(default_factory=deque)
    """Events, and replies as encoded text."""
    dead: deque[tuple[int, Event]] = field(default_factory=lambda: deque(maxlen=DEAD_QUEUE))
    first: deque[Event | str] = field(default_factory=deque)
    """Frames to send before the others: what a resume repeats, or its hello."""
    cut: bool = False
    """It read too slowly; nothing more is sent, and it cannot be resumed."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with `cut`: whoever is held up in a send learns of it."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, item: Event | str) -> None:
        """Queue an event or a reply; TooSlow when the queue is full."""
        depth = len(self.waiting)
        if depth >= DROP_TYPING_ABOVE and isinstance(item, Event) and item.name in LOW_WORTH:
            return
        if depth >= SEND_QUEUE:
            raise TooSlow
        self.waiting.append(item)
        self._wake.set()

    def stop(self) -> None:
        """End the writer: the connection is cut."""
        self.cut = True
        self.active = False
        self.gone.set()
        self._wake.set()

    async def write(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what is queued until the connection is cut; what `send` raises comes through."""
        while not self.cut:
            queue = self.first or self.waiting
            if queue:
                await send(self._encode(queue.popleft()))
            else:
                self._wake.clear()
                await self._wake.wait()

    def _encode(self, item: Event | str) -> str:
        if isinstance(item, str):
            return item
        seq = self.next_seq
        self.next_seq += 1
        self.dead.append((seq, item))
        return item.numbered(seq)

    def resume(self, expected: int) -> list[str] | None:
        """Continue at the number the client expects; return the frames to repeat, None when there would be a gap.

        0 is the trap of the real server: nothing is checked, and numbering starts again without a hello.
        """
        if expected == 0:
            self.next_seq = 0
            self.dead.clear()
            return []
        repeat = [event.numbered(seq) for seq, event in self.dead if seq >= expected]
        if any(seq == expected for seq, _ in self.dead):
            return repeat
        if not self.dead or self.dead[-1][0] == expected - 1:
            self.next_seq = expected
            return []
        return None

    def successor(self, *, same_id: bool) -> Connection:
        """Return a live connection that takes over the queues."""
        heir = Connection(
            id=self.id if same_id else new_id(),
            user_id=self.user_id,
            token_hash=self.token_hash,
            next_seq=self.next_seq,
            waiting=self.waiting,
            dead=self.dead if same_id else deque(maxlen=DEAD_QUEUE),
        )
        if not same_id:
            heir.next_seq = 0
        return heir
