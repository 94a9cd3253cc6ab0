"""What a node host asks of the services: the clients of its workers, one board stream, and the listeners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agensh.clients.board import BoardClient
from agensh.clients.gitea import GiteaClient
from agensh.clients.mattermost import MattermostClient
from agensh.rundir import WorkerSecrets
from router.events import EventSink
from router.feed import EntrySource


@dataclass(frozen=True, slots=True)
class WorkerClients:
    """The services as one worker sees them, with its own tokens."""

    board: BoardClient
    chat: MattermostClient
    forge: GiteaClient


class Listener(Protocol):
    """Turns what one source shows into events, until it is cancelled."""

    async def run(self) -> None:
        """Listen."""
        ...


class Backends(Protocol):
    """The services of one run."""

    def feed_source(self) -> EntrySource:
        """Return what the node's one board stream reads from."""
        ...

    async def channel_id(self) -> str:
        """Return the id of the team's task channel."""
        ...

    def clients(self, worker: str, secrets: WorkerSecrets) -> WorkerClients:
        """Return the clients of one worker."""
        ...

    def listeners(
        self, worker: str, secrets: WorkerSecrets, clients: WorkerClients, sink: EventSink, channel_id: str
    ) -> Sequence[Listener]:
        """Return the listeners of one worker."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
