"""The parts of one running chat, as every route gets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from agensh.clock import Clock
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.hub import Hub
from agensh.embedded.chat.pending import PendingPosts
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.chat.store import Store


@dataclass(slots=True)
class Chat:
    """Everything a route works with."""

    store: Store
    directory: Directory
    hub: Hub
    clock: Clock
    settings: ChatSettings
    pending: PendingPosts = field(init=False)

    def __post_init__(self) -> None:
        self.pending = PendingPosts(self.clock)

    def now(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.clock.time() * 1000)
