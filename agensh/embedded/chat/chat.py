"""The parts of one running chat, as every route gets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from agensh.clock import Clock
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.hub import Hub
from agensh.embedded.chat.pending import PendingPosts
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.chat.store import Store

LONGEST_STEP_MS = 86_400_000
"""A post from further ahead was given its time by an importer."""


@dataclass(slots=True)
class Chat:
    """Everything a route works with."""

    store: Store
    directory: Directory
    hub: Hub
    clock: Clock
    settings: ChatSettings
    pending: PendingPosts = field(init=False)
    _ahead: int = field(init=False)
    """Milliseconds by which the newest post was ahead of the clock at the start: the clock was set back meanwhile."""

    def __post_init__(self) -> None:
        self.pending = PendingPosts(self.clock)
        newest = max((channel.last_post_at for channel in self.directory.channels.values()), default=0)
        ahead = newest + 1 - int(self.clock.time() * 1000)
        self._ahead = ahead if 0 < ahead <= LONGEST_STEP_MS else 0

    def now(self) -> int:
        """Return milliseconds since the epoch; never before a stored post, for readers go on from the newest one."""
        return int(self.clock.time() * 1000) + self._ahead
