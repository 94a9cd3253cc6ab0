"""What the parts of a node host see of each other.

The MCP endpoint and its tools work on a `WorkerPort`; the router is the one that implements it. Kept apart so that
neither imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One finished MCP tool call, for the record."""

    tool: str
    arguments: str
    """The arguments as JSON, cut to 2,000 characters."""
    ok: bool
    summary: str
    """First characters of the result or the error."""
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Notice:
    """What is appended to one tool result."""

    text: str
    refs: tuple[str, ...] = field(default=())
    """What it shows: `g<seq>` for entries, `e<event id>` for direct messages."""


class NoticeDesk(Protocol):
    """The pending notices of one worker; the one cursor of all delivery paths (tool results, hooks, turns)."""

    def acknowledge(self) -> None:
        """The worker's next call or the end of its turn proved that what was handed out so far arrived.

        What is known to have been lost on its way is pending again instead.
        """
        ...

    def waiting(self) -> bool:
        """Say whether there may be something to collect; costs next to nothing."""
        ...

    def collect(self, room: int, via: str = "mcp", arrived: Callable[[], bool] | None = None) -> Notice | None:
        """Return what is pending in at most `room` characters and remember it as handed out; None when nothing is.

        `via`, `mcp` or `hook`, says for the record which way it goes; `arrived` says later whether it may have arrived.
        Direct messages first, then FAIL, CLAIM, FACT, OBSERVED, PATCH_SUMMARY; the rest is counted. Costs no I/O.
        """
        ...

    def worker_read(self, posts: Collection[str], arrived: Callable[[], bool] | None = None) -> None:
        """The worker reads these posts of the chat (ids) by itself: they are not announced again.

        `arrived` is that of the answer which shows them, as with `collect`.
        """
        ...


class WorkerPort(Protocol):
    """One worker as the MCP endpoint sees it."""

    @property
    def name(self) -> str:
        """Full handle."""
        ...

    @property
    def board(self) -> BoardClient:
        """Board client with the worker's own token."""
        ...

    @property
    def chat(self) -> MattermostClient:
        """Chat client with the worker's own token."""
        ...

    @property
    def forge(self) -> GiteaClient:
        """Forge client with the worker's own token."""
        ...

    @property
    def desk(self) -> NoticeDesk:
        """Its pending notices."""
        ...

    @property
    def peers(self) -> tuple[str, ...]:
        """Full handles of the other workers of the team."""
        ...

    @property
    def repository(self) -> tuple[str, str]:
        """Owner and name of the team's repository on the forge."""
        ...

    @property
    def channel_id(self) -> str:
        """Id of the team's task channel."""
        ...

    def authorises(self, token: str) -> bool:
        """Say whether `token` is this worker's MCP token (compared in constant time)."""
        ...

    def record(self, call: ToolCall) -> None:
        """Put a finished tool call into the run record (buffered; never blocks)."""
        ...
