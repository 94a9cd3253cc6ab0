"""The scripted model on a real port of the loopback interface, with a record of what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agensh.embedded.model.app import Recorded, ScriptedModel
from agensh.embedded.model.conversation import Player, Returned, Said
from agensh.embedded.model.directives import Directed
from tests.support.uvicorn_server import serving


@dataclass
class Model:
    """A running scripted model."""

    url: str = ""
    """Its root; the CLIs append `/v1` themselves or want it appended."""
    requests: list[Recorded] = field(default_factory=list)
    """Everything that was posted, oldest first, title questions and token counts included."""
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def turns(self) -> list[Recorded]:
        """The requests of the agent's own loop: those that offer tools."""
        return [each for each in self.requests if each.conversation is not None and each.conversation.tools]

    def results(self) -> list[str]:
        """Return what tool calls gave, as the last request of the loop shows it."""
        last = self.turns[-1].conversation
        assert last is not None
        return [item.text for item in last.items if isinstance(item, Returned)]

    def said(self, role: str = "user") -> list[str]:
        """Return what `role` said, as the last request of the loop shows it."""
        last = self.turns[-1].conversation
        assert last is not None
        return [item.text for item in last.items if isinstance(item, Said) and item.role == role]

    async def until(self, condition: Callable[[Model], bool], seconds: float = 60.0) -> None:
        """Wait until the requests meet a condition; TimeoutError when they do not."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                self._came.clear()
                await self._came.wait()

    def take(self, recorded: Recorded) -> None:
        """Keep a request."""
        self.requests.append(recorded)
        self._came.set()


@asynccontextmanager
async def scripted_model(player: Player | None = None, key: str = "") -> AsyncIterator[Model]:
    """Serve the scripted model: what a prompt's directives say, or another player; with a key it takes no other."""
    model = Model()
    app = ScriptedModel(player or Directed(), model.take, key)
    async with serving(app) as model.url:
        try:
            yield model
        finally:
            app.close()
