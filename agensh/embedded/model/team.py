"""The model that plays the work cycle: one rule-based mind a worker, told apart by the handle.

What a worker's mind remembers is in a session file, written at every step. When this process was restarted, or the CLI
was killed, the next request finds no turn it belongs to: the turn that its last prompt began is then begun anew, which
the mind's steps allow, and nothing else of the conversation is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

from adapters.scripted.brain import Brain, brief
from adapters.scripted.desk import Desk
from adapters.scripted.git import Clone
from adapters.scripted.pieces import Pieces
from adapters.scripted.playbook import Playbook, load
from adapters.scripted.reading import Notice
from adapters.scripted.session import SessionFile
from agensh.clock import Clock
from agensh.embedded.model.conversation import Conversation, Refusal, Reply, Said
from agensh.embedded.model.hands import WireBench, WireShell, WireTools
from agensh.embedded.model.tools import NotOffered, shell_call
from agensh.embedded.model.turn import Turn

_HANDLE = re.compile(r"\b[Yy]ou are `(?P<handle>[a-z][a-z0-9-]*-worker[1-9][0-9]{0,3})`")
_PROMPT = re.compile(r"^(?:\[event\] event_id=|# You are `)", re.MULTILINE)
ASIDE = "A worker of the team follows the work cycle."
"""What is answered to questions beside the work, such as for a title or a summary."""


class Mind:
    """One worker's."""

    def __init__(self, worker: str, playbook: Playbook, folder: Path, clock: Clock) -> None:
        self._playbook = playbook
        self._clock = clock
        self._file = SessionFile(folder, worker)
        self._state = self._file.load() if self._file.path.exists() else self._file.create()
        self._turn: Turn | None = None
        self._prompt = ""

    async def answer(self, conversation: Conversation) -> Reply:
        """Go on with the turn that the conversation is in, or begin the one that its last prompt asks for."""
        prompt, calls = "", 0
        for index in range(len(conversation.items) - 1, -1, -1):
            item = conversation.items[index]
            if isinstance(item, Said) and item.role == "user" and _PROMPT.search(item.text):
                prompt, calls = item.text, conversation.since(index)
                break
        if self._turn is None or prompt != self._prompt or not self._turn.holds(calls):
            await self.stop()
            self._prompt = prompt
            self._turn = Turn(lambda turn: self._work(turn, prompt))
        return await self._turn.answer(conversation)

    async def stop(self) -> None:
        """Give the turn up."""
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.cancel()

    async def _work(self, turn: Turn, prompt: str) -> str:
        state, clock = self._state, self._clock
        told = brief(prompt, state, clock)
        self._save()
        desk: Desk | None = None

        def hear(notice: Notice) -> None:
            if desk is not None:
                desk.put(notice)

        shell = WireShell(turn, hear)
        tools = WireTools(turn, hear, clock)
        desk = Desk(state, tools, self._save)
        await shell.set_up()
        clone = Clone(shell, shell.home / "repository", state.repository, state.worker)
        bench = WireBench(Path(state.reference), shell)
        pieces = Pieces(self._playbook, state, tools, clone, bench, desk, clock)
        return await Brain(state, tools, clone, desk, pieces, clock).turn(told)

    def _save(self) -> None:
        self._file.save(self._state)


class Team:
    """The player: `play` asks the mind of the worker that the request is of."""

    def __init__(self, playbook: Path, folder: Path, clock: Clock) -> None:
        self._playbook = load(playbook)
        self._folder = folder
        self._clock = clock
        self._minds: dict[str, Mind] = {}

    async def play(self, conversation: Conversation) -> Reply | Refusal:
        """See Player.play."""
        try:
            shell_call(conversation.tools, "")
        except NotOffered:
            return Reply(ASIDE)
        worker = conversation.worker or _handle(conversation)
        if not worker:
            return Refusal(400, "Neither the gateway nor the prompt says which worker this is.")
        if worker not in self._minds:
            self._minds[worker] = Mind(worker, self._playbook, self._folder, self._clock)
        return await self._minds[worker].answer(conversation)

    async def close(self) -> None:
        """Give all turns up."""
        for mind in self._minds.values():
            await mind.stop()


def _handle(conversation: Conversation) -> str:
    found = (_HANDLE.search(item.text) for item in conversation.items if isinstance(item, Said))
    return next((match["handle"] for match in found if match), "")
