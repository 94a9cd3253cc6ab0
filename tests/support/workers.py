"""Workers as the MCP endpoint sees them, in memory."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Collection
from typing import Any

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.clock import Clock
from agensh.entries import Entry
from router.mcp.notices import PendingMessage, render_notice
from router.ports import Notice, ToolCall


class MemoryDesk:
    """A desk that keeps its rules: handed out once, acknowledged by the next call, back after a restart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.messages: list[PendingMessage] = []
        self.entries: list[Entry] = []
        self.handed_out: list[str] = []
        self.acknowledged: list[str] = []
        self.read: list[set[str]] = []
        """Ids of the posts of each reading of the chat."""

    def acknowledge(self) -> None:
        self.acknowledged += self.handed_out
        self.handed_out.clear()

    def waiting(self) -> bool:
        return bool(self.messages or self.entries)

    def collect(self, room: int, via: str = "mcp", arrived: Callable[[], bool] | None = None) -> Notice | None:
        gone = {*self.handed_out, *self.acknowledged}
        rendered = render_notice(
            [message for message in self.messages if message.ref not in gone],
            [entry for entry in self.entries if f"g{entry.seq}" not in gone],
            room=room,
            now=self._clock.time(),
        )
        if rendered is None:
            return None
        self.handed_out += rendered.shown
        return Notice(rendered.text, rendered.shown)

    def worker_read(self, posts: Collection[str], arrived: Callable[[], bool] | None = None) -> None:
        self.read.append(set(posts))

    def restart(self) -> None:
        """The worker's process died: what was not acknowledged waits again."""
        self.handed_out.clear()


class StubWorker:
    """A worker with any clients, a fixed token and a record in memory."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        token: str = "",
        board: Any = None,
        chat: Any = None,
        forge: Any = None,
        peers: tuple[str, ...] = (),
    ) -> None:
        self._name = name
        self.token = token or f"token-of-{name}"
        self._desk = MemoryDesk(clock)
        self._board = board
        self._chat = chat
        self._forge = forge
        self._peers = peers
        self.calls: list[ToolCall] = []
        self.recorded = asyncio.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def board(self) -> BoardClient:
        return self._board  # type: ignore[no-any-return]  # tests hand in what answers like one

    @property
    def chat(self) -> MattermostClient:
        return self._chat  # type: ignore[no-any-return]

    @property
    def forge(self) -> GiteaClient:
        return self._forge  # type: ignore[no-any-return]

    @property
    def desk(self) -> MemoryDesk:
        return self._desk

    @property
    def peers(self) -> tuple[str, ...]:
        return self._peers

    @property
    def repository(self) -> tuple[str, str]:
        return "team", "textutils"

    @property
    def channel_id(self) -> str:
        return "channel1"

    def authorises(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def record(self, call: ToolCall) -> None:
        self.calls.append(call)
        self.recorded.set()
