"""The work cycle of a rule-based worker: look, claim, build, compare, land, publish; audit; wind down.

It knows only what its prompt, its tools, its clone and the playbook tell it. One turn does a bounded amount of work,
then it ends, so that what waits in the queue is delivered. Every finished step is saved; after a crash the next turn
begins there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from adapters.base import Outcome, Text, ToolActivity
from adapters.scripted.choice import AUDITS, IDLE_AUDITS, Knowledge, Piece, audits_of, choose
from adapters.scripted.desk import Desk
from adapters.scripted.git import Clone
from adapters.scripted.mcp_client import McpTools, Tools, ToolsUnavailable
from adapters.scripted.pieces import GivenUp, Pieces
from adapters.scripted.playbook import load
from adapters.scripted.reading import Prompt, claim_text, keeps, read_prompt, rivals
from adapters.scripted.session import Job, SessionFile, State
from adapters.scripted.shell import LocalShell
from adapters.scripted.work import LocalBench
from agensh.clock import Clock
from agensh.errors import AgenshError

PIECES = 20  # pieces of work in one turn, at most
TURN_SHARE = 1 / 8  # of the time left: after this no further piece is begun in a turn
SHORTEST_TURN, LONGEST_TURN = 10.0, 60.0  # seconds, whatever the share is
MARGIN = 1.5  # a piece is begun only when this many times what one takes is left
MARGIN_SHARE = 1 / 8  # of the whole run; from there on the run winds down anyway
PACE_DECAY = 0.7  # of what a piece takes, with every quicker one: a busy time passes
_CLAIM_TRIES = 5


class NotBriefed(AgenshError):
    """The prompt does not say who I am, where the repository is and where the reference is."""


def outcome_of(error: AgenshError) -> Outcome:
    """Say what a turn that ended with this error is to the router."""
    match error:
        case ToolsUnavailable():
            return Outcome.TOOLS_MISSING
        case NotBriefed():
            return Outcome.REFUSED
    return Outcome.CRASHED


def brief(prompt: str, state: State, clock: Clock) -> Prompt:
    """Take in what a turn's prompt says; NotBriefed names what no prompt has said so far."""
    told = read_prompt(prompt)
    state.worker = state.worker or told.worker
    state.repository = told.repository or state.repository
    state.reference = told.reference or state.reference
    state.deadline = told.deadline or state.deadline
    missing = [name for name in ("worker", "repository", "reference") if not getattr(state, name)]
    if missing:
        raise NotBriefed(f"The prompt does not name my {', '.join(missing)}.")
    state.began_at = state.began_at or clock.time()
    state.turns += 1
    return told


async def run_turn(
    prompt: str,
    playbook: Path,
    file: SessionFile,
    state: State,
    clock: Clock,
    emit: Callable[[Text | ToolActivity], None],
) -> None:
    """Do one turn on this machine; the session file is up to date whenever this waits."""
    told = brief(prompt, state, clock)
    file.save(state)
    shell = LocalShell(emit)
    desk: list[Desk] = []
    url, token = os.environ["AGENSH_MCP_URL"], os.environ["AGENSH_MCP_TOKEN"]
    async with McpTools(url, token, emit, lambda notice: desk[0].put(notice), clock) as tools:
        clone = Clone(shell, Path.cwd() / "repository", state.repository, state.worker)
        bench = LocalBench(Path(state.reference), Path(os.environ.get("TMPDIR", "/tmp")), shell)
        desk.append(Desk(state, tools, lambda: file.save(state)))
        pieces = Pieces(load(playbook), state, tools, clone, bench, desk[0], clock)
        brain = Brain(state, tools, clone, desk[0], pieces, clock)
        emit(Text(await brain.turn(told)))


class Brain:
    """One turn of one worker."""

    def __init__(self, state: State, tools: Tools, clone: Clone, desk: Desk, pieces: Pieces, clock: Clock) -> None:
        self.state = state
        self.tools = tools
        self.clone = clone
        self.desk = desk
        self.pieces = pieces
        self.clock = clock

    async def turn(self, told: Prompt) -> str:
        """Work until the turn's share is done; return what to say at its end."""
        began = self.clock.time()
        share = self._left(began) * TURN_SHARE
        until = began + min(max(share, SHORTEST_TURN), LONGEST_TURN)
        self.state.winding_down |= told.has("wind_down")
        self.state.last_call |= told.has("last_call")
        await self.clone.ensure()
        if not self.state.introduced:
            await self._tidy()
        await self.desk.look(told)
        if not self.state.introduced:
            await self.desk.post(
                "introduction", f"{self.state.worker} here. I take free areas and audits as they come."
            )
            self.state.introduced = True
        said: list[str] = []
        if self.state.finished:
            return "Nothing is left to do: the last call was answered."
        for number in range(PIECES):
            if self.state.last_call:
                break
            piece_began = self.clock.time()
            if self.state.job is None and not await self._take(told, number):
                break
            try:
                said.append(await self.pieces.perform())
            except GivenUp as given_up:
                said.append(str(given_up))
            await self.desk.react()
            now = self.clock.time()
            self.state.pace = max(now - piece_began, self.state.pace * PACE_DECAY)
            if self.state.job is not None or now > until:
                break
        if self.state.last_call:  # the prompt said so, or a reminder came during the turn
            said.append(await self._finish())
        return " ".join(said) or "I found nothing to do: every area is taken, merged or audited."

    def _margin(self) -> float:
        """Return how long before the end no further piece is begun: by what one takes, at most a share of the run."""
        return min(MARGIN * self.state.pace, MARGIN_SHARE * max(0.0, self.state.deadline - self.state.began_at))

    async def _tidy(self) -> None:
        """Give up what a former session of mine, which is lost, has left half done."""
        await self.clone.fetch()
        for branch in await self.clone.leftovers():
            await self.clone.discard(branch)
        for line in await self.desk.claims():
            if line.worker == self.state.worker:
                await self.desk.release(line.label)

    def _left(self, now: float) -> float:
        return max(0.0, self.state.deadline - now) if self.state.deadline else float("inf")

    async def _take(self, told: Prompt, number: int) -> bool:
        """Choose and claim a piece of work; False when there is none or the run winds down."""
        now = self.clock.time()
        if self.state.winding_down or self._left(now) < self._margin():
            return False
        audits = IDLE_AUDITS if told.has("idle") else AUDITS
        for attempt in range(_CLAIM_TRIES):
            known = await self._known()
            seed = f"{self.state.worker}/{self.state.turns}/{number}/{attempt}"
            piece = choose(known, seed, audits=audits)
            if piece is None:
                # With the core still in work everything else can be prepared, so this is the end.
                return False
            if await self._claim(piece, seed):
                return True
        return False

    async def _known(self) -> Knowledge:
        await self.clone.fetch()
        dispatch = await self.clone.show(self.pieces.playbook.dispatch_path)
        lines = await self.desk.read()
        return Knowledge(
            me=self.state.worker,
            areas=self.pieces.playbook.areas,
            core_on_main=dispatch is not None,
            on_main=self.pieces.registered(dispatch or ""),
            claims=await self.desk.claims(),
            audits=audits_of(lines),
            mine=[tool for tool, count in self.state.audited.items() if count],
            stuck=list(self.state.stuck),
        )

    async def _claim(self, piece: Piece, seed: str) -> bool:
        """Announce the piece; give way when somebody was earlier."""
        area = (piece.kind, piece.tool)
        await self.tools.call("board_grep", query=f"{piece.tool}:")
        text = claim_text(piece.kind, piece.tool, self.pieces.title(piece.tool))
        written = await self.desk.write("CLAIM", text, key=f"claim/{seed}")
        if written is None:
            return False
        earlier = [line for line in rivals(await self.desk.claims(), self.state.worker, area) if line.seq < written]
        if not keeps(written, earlier):
            first = earlier[0]
            await self.desk.give_way(first, written, piece.tool)
            return False
        branch = f"{self.state.worker}/{piece.kind}-{piece.tool}-g{written}"
        self.state.job = Job(piece.kind, piece.tool, f"G{written}", branch, seed=seed)
        self.desk.save()
        return True

    async def _finish(self) -> str:
        """Answer the last call: land what is ready, confirm that main builds, say how it stands, stop."""
        said: list[str] = []
        if self.state.job is not None:
            try:
                said.append(await self.pieces.finish())
            except GivenUp as given_up:
                said.append(str(given_up))
        await self.clone.fetch()
        built = await self.pieces.main_builds()
        tools = self.pieces.registered(await self.clone.show(self.pieces.playbook.dispatch_path) or "")
        state = f"Final state: main {'builds' if built else 'does not build'}, {len(tools)} tools are in."
        await self.desk.post("final", f"{state} {' '.join(said)}".strip())
        self.state.finished = True
        self.desk.save()
        return state
