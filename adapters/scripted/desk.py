"""The worker's dealings with its peers: what it hears and what it says, each once, also after a crash."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from adapters.scripted.mcp_client import Tools
from adapters.scripted.reading import BoardLine, Message, Notice, Prompt, Reminder, area_of, board_lines, keeps
from adapters.scripted.replies import reply_to
from adapters.scripted.session import State
from agensh.entries import EntryType, content_cap

_INBOX = 2000  # notices kept until the worker looks at them; the oldest go first, the board still has them
_KEPT_LINES = 5000


class Desk:
    """Board and chat of one worker."""

    def __init__(self, state: State, tools: Tools, save: Callable[[], None]) -> None:
        self.state = state
        self.tools = tools
        self.save = save
        self.failures: set[str] = set()
        """Contents of the FAILs on the board."""
        self._inbox: deque[BoardLine | Message] = deque(maxlen=_INBOX)
        self._lines: dict[int, BoardLine] = {}
        self._late: dict[int, BoardLine] = {}
        self._reacting = False

    def put(self, notice: Notice) -> None:
        """Take in what came with a tool result."""
        if isinstance(notice, Reminder):
            # Heard at once: it says how the turn that is under way has to end.
            self.state.winding_down = True
            self.state.last_call |= notice.last_call
            self.save()
        else:
            self._inbox.append(notice)

    async def look(self, told: Prompt) -> None:
        """Take in what the prompt brought: entries, and direct messages that waited."""
        for line in told.context:
            self.put(line)
        for event in told.events:
            if event.kind == "direct_message" and event.sender:
                self.put(Message(event.sender, event.summary))
        await self.react()

    async def react(self) -> None:
        """Go through what has come in. What comes in meanwhile is for the next time."""
        if self._reacting:
            return
        self._reacting = True
        try:
            late, self._late = self._late, {}
            for line in late.values():
                await self._insist(line)
            for _ in range(len(self._inbox)):
                notice = self._inbox.popleft()
                if isinstance(notice, Message):
                    await self._answer(notice)
                else:
                    self._hear(notice)
        finally:
            self._reacting = False

    def _hear(self, line: BoardLine) -> None:
        if line.seq:
            self._lines[line.seq] = line
            if len(self._lines) > _KEPT_LINES:
                self._lines.pop(min(self._lines))
        if line.type is EntryType.FAIL:
            self.failures.add(line.content)
        if self._overlaps(line):
            # The later one has been told with its own CLAIM; it gets until I look up again to give way by itself.
            self._late[line.seq] = line

    def _overlaps(self, line: BoardLine) -> bool:
        job = self.state.job
        return (
            job is not None
            and line.type is EntryType.CLAIM
            and line.worker != self.state.worker
            and area_of(line.content) == (job.kind, job.tool)
            and keeps(int(job.claim[1:]), [line])
        )

    async def _insist(self, line: BoardLine) -> None:
        job = self.state.job
        if job is None or not self._overlaps(line):
            return
        if any(claim.seq == line.seq for claim in await self.claims()):
            text = f"{job.tool}: my {job.claim} is earlier than your {line.label}, please take another area."
            await self.tell(line.worker, f"insist/{line.label}", text)

    async def _answer(self, message: Message) -> None:
        answer = reply_to(message, self.state.job)
        if answer is not None:
            await self.tell(message.sender, f"reply/{message.sender}/{message.text[:80]}", answer)

    async def give_way(self, first: BoardLine, mine: int, tool: str) -> None:
        """Settle an overlap in which the other was earlier: tell it, and release my CLAIM."""
        text = f"{tool}: your {first.label} is earlier than my G{mine}, so it is yours; I release mine."
        await self.tell(first.worker, f"give-way/G{mine}", text)
        await self.tools.call("board_release", label=f"G{mine}")

    async def write(self, type_: str, content: str, detail: str = "", *, key: str) -> int | None:
        """Write an entry, once for each key; return its number, None when the board refused it."""
        content = content[: content_cap(EntryType(type_))]
        result = await self.tools.call(
            "board_write", type=type_, content=content, detail=detail, key=f"{self.state.session}/{key}"
        )
        label = result.fields.get("label", "")
        return int(label[1:]) if result.ok and label[1:].isdigit() else None

    async def release(self, label: str) -> None:
        """Give up a CLAIM; one that is gone already is fine."""
        await self.tools.call("board_release", label=label)

    async def read(self) -> list[BoardLine]:
        """Return all entries I have seen, after reading what is new."""
        after = max(self._lines, default=0)
        result = await self.tools.call("board_read", **({"after": after} if after else {}))
        for line in board_lines(result.text):
            self._hear(line)
        return [self._lines[seq] for seq in sorted(self._lines)]

    async def claims(self) -> list[BoardLine]:
        """Return the active CLAIMs."""
        result = await self.tools.call("board_read", type="CLAIM")
        return [line for line in board_lines(result.text) if line.type is EntryType.CLAIM and line.active]

    async def post(self, key: str, text: str) -> None:
        """Post to the team's channel, once for each key."""
        await self._say(f"post/{key}", "chat_post", message=text)

    async def tell(self, worker: str, key: str, text: str) -> None:
        """Send a direct message, once for each key."""
        await self._say(f"dm/{key}", "chat_dm", to=worker, message=text)

    async def _say(self, key: str, tool: str, **arguments: Any) -> None:
        if key in self.state.answered:
            return
        # The key makes the chat drop the second one when I was killed between saying it and remembering that.
        if (await self.tools.call(tool, **arguments, key=f"{self.state.session[:12]}/{key}"[:200])).ok:
            self.state.answer_once(key)
            self.save()
