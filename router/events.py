"""Events on their way into a worker's queue.

A listener turns what a source shows into `NewEvent`s and hands them, together with its own cursor, to an `EventSink`.
The sink commits both in one transaction and drops what it knows already by `(worker, dedupe_key)`: a crash anywhere may
repeat a read of the source, and loses and doubles no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

MESSAGE_CAP = 4000  # characters of a direct message: it is meant for one worker and shown whole where that is sane


class Source(StrEnum):
    """Where an event comes from."""

    GITEA = "gitea"
    MATTERMOST = "mattermost"
    CONTROL = "control"


class Kind(StrEnum):
    """What happened."""

    # gitea
    COMMENT = "comment"
    MENTION = "mention"  # of mattermost as well
    ISSUE = "issue"
    PULL_OPENED = "pull_opened"
    PULL_UPDATED = "pull_updated"
    PULL_MERGED = "pull_merged"
    PULL_CLOSED = "pull_closed"
    REVIEW = "review"
    # mattermost
    DIRECT_MESSAGE = "direct_message"
    CHANNEL_POST = "channel_post"
    # control
    START = "start"
    RESUMED = "resumed"
    IDLE = "idle"
    PUBLISH_REMINDER = "publish_reminder"
    WIND_DOWN = "wind_down"
    LAST_CALL = "last_call"
    BUDGET_80 = "budget_80"
    BUDGET_95 = "budget_95"


class Priority(IntEnum):
    """The order of events within a turn; lower comes first."""

    CONTROL = 0
    DIRECT = 1
    MENTION = 2
    REST = 3


@dataclass(frozen=True, slots=True)
class NewEvent:
    """One event as a source reported it, not yet queued."""

    source: Source
    kind: Kind
    dedupe_key: str
    """Names the thing that happened for one worker, e.g. `gitea:comment:41`; at most 190 characters."""
    summary: str
    """One line for the agent, at most 400 characters, made by `agensh.text.one_line`: it cannot forge structure."""
    observed_at: float
    """Epoch seconds of the thing itself (the post, the comment), or of its reading where the source does not say."""
    thread: str = ""
    """Events of one thread are combined in a turn, e.g. `gitea:owner/repo#4`, `mattermost:<root or channel id>`."""
    priority: Priority = Priority.REST
    body: dict[str, Any] = field(default_factory=dict)
    """Ids for a later look at the source (JSON): repository, number, comment id; channel id, post id; author."""


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """Something that waits for a worker: a row of its queue, or a post of the task channel."""

    id: int
    """Of the row; of a post its `seq`, negative."""
    source: Source
    kind: Kind
    priority: Priority
    thread: str
    summary: str
    body: dict[str, Any]
    observed_at: float
    attempts: int
    handed_out: int

    @property
    def ref(self) -> str:
        """How notices and prompts name it."""
        return f"e{self.id}" if self.id > 0 else f"p{-self.id}"

    @property
    def length(self) -> int:
        """About how many characters a prompt has of it at the most."""
        return max(len(self.summary), min(len(str(self.body.get("text", ""))), MESSAGE_CAP))


class EventSink(Protocol):
    """The durable end of a listener: the queue of one worker."""

    async def put(self, events: Sequence[NewEvent], cursor: Mapping[str, str]) -> int:
        """Commit the events not yet known and the source's cursor rows in one transaction; return how many were new.

        `cursor` maps a cursor's name (`mattermost:channel:<id>`) to its new value; an empty value deletes the row.
        """
        ...

    async def cursor(self, source: str) -> str | None:
        """Return a cursor's committed value; None when there is none yet."""
        ...
