"""A light worker of a rehearsal: calls its tools at given rates and writes down what it was shown, and when.

The calls are due at times drawn beforehand, whatever the answers take (an open loop): a team that falls behind shows as
calls that begin late. A worker makes one call at a time, as a CLI does.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agensh.clock import Clock
from agensh.rehearse.log import LoadLog
from agensh.rehearse.plan import CLOSING_RATE, Plan
from agensh.rehearse.reading import Seen, entry_marker, message_marker, read_result
from agensh.rehearse.wire import Wire, WireError

PATIENCE = 5.0  # seconds after the end in which calls that were due are still made
CLOSING_CALLS = 12  # looks at what is left, at most; one is enough unless many messages wait
_TEXT = (
    "parser tabs flag header column stream buffer locale merge sort join field width octal signed empty newline quote "
    "escape range option error status stdin path signal cache index token border margin digest window replay"
)
WORDS = _TEXT.split()
_TYPES = ("OBSERVED", "FACT", "FAIL", "CLAIM", "PATCH_SUMMARY")
_WEIGHTS = (30, 30, 15, 15, 10)  # about what teams write
_LOOKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("board_read", {"limit": 20}),
    ("board_grep", {"query": "parser&tabs"}),
    ("board_pending", {}),
    ("chat_read", {"limit": 10}),
    ("chat_who", {}),
    ("forge_issue", {"number": 1}),
)


@dataclass(frozen=True, slots=True)
class Access:
    """How one worker reaches its tools and the forge."""

    mcp_url: str
    mcp_token: str
    contents_url: str
    """Of the repository's files on the forge: a commit there stands for a push."""
    forge_token: str
    names: tuple[str, ...]
    """Full handles of the team."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's answer."""

    text: str
    seen: Seen

    def field(self, name: str) -> str:
        """Return a word of the first line, e.g. `label=G1`; empty when there is none."""
        for word in self.text.split("\n", 1)[0].split():
            key, _, value = word.partition("=")
            if key == name:
                return value
        return ""


class Worker:
    """One worker; `run` makes its calls until the plan ends."""

    def __init__(self, index: int, plan: Plan, access: Access, log: LoadLog, clock: Clock) -> None:
        self._index = index
        self._plan = plan
        self._access = access
        self._tools, self._forge = Wire(access.mcp_url), Wire(access.contents_url)
        self._log = log
        self._clock = clock
        self._random = random.Random(f"{plan.seed}:{index}")
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)

    async def run(self) -> None:
        """Work from the plan's begin to its end, then look at what is left."""
        try:
            await self._work()
        finally:
            await self._tools.close()
            await self._forge.close()

    async def _work(self) -> None:
        rates = self._plan.rates.per_second()
        kinds, weights = list(rates), list(rates.values())
        total = sum(weights)
        due = self._plan.begin + (self._random.uniform(0, 1 / total) if total else 0.0)
        while total and due < self._plan.end:
            if self._clock.time() > self._plan.end + PATIENCE:
                self._log.add("undone", self._index, 1)
            else:
                await self._clock.sleep(due - self._clock.time())
                await self._do(self._random.choices(kinds, weights)[0], due)
            due += self._interval(total)
        await self._look(self._plan.closing_at(self._index))

    async def look_again(self) -> None:
        """Look once more at what is left, in turn with the other workers."""
        try:
            await self._look(self._clock.time() + self._index / CLOSING_RATE)
        finally:
            await self._tools.close()

    async def _look(self, closing: float) -> None:
        await self._clock.sleep(closing - self._clock.time())
        for _ in range(CLOSING_CALLS):
            answer = await self._call("chat_who", {}, closing)
            if answer is not None and not answer.seen.messages:
                return

    def _interval(self, rate: float) -> float:
        if self._plan.spacing == "uniform":
            return self._random.uniform(0.5, 1.5) / rate
        return self._random.expovariate(rate)

    async def _do(self, kind: str, due: float) -> None:
        match kind:
            case "entry":
                await self._entry(due)
            case "message":
                await self._message(due)
            case "post":
                await self._call("chat_post", {"message": self._words(12)}, due)
            case "merge":
                await self._merge(due)
            case _:
                tool, arguments = self._random.choice(_LOOKS)
                await self._call(tool, arguments, due)

    async def _entry(self, due: float) -> None:
        marker = entry_marker(self._index, next(self._numbers))
        type_ = self._random.choices(_TYPES, _WEIGHTS)[0]
        content = f"{marker} {self._words(8)}"[:100]
        if type_ == "PATCH_SUMMARY":
            content = f"files={self._words(1)}.c | idea={content} | evidence=test {self._words(3)} passes"
        began = self._clock.time()
        answer = await self._call("board_write", {"type": type_, "content": content}, due)
        if answer is not None and answer.field("status") == "admitted":
            self._log.add("entry", self._index, marker, began, self._clock.time())

    async def _message(self, due: float) -> None:
        workers = self._plan.workers
        if workers < 2:
            return
        reach = min(self._plan.contacts, workers - 1)
        to = (self._index + self._random.randint(1, reach)) % workers
        marker = message_marker(self._index, next(self._numbers))
        began = self._clock.time()
        text = f"{marker} {self._words(15)}"
        answer = await self._call("chat_dm", {"to": self._access.names[to], "message": text}, due)
        if answer is not None and answer.field("status") == "sent":
            self._log.add("message", self._index, marker, to, began, self._clock.time())

    async def _merge(self, due: float) -> None:
        branch = f"{self._access.names[self._index]}-{next(self._numbers)}"
        if not await self._commit(branch):
            return
        opened = await self._call("forge_pull_open", {"branch": branch, "title": self._words(5)}, due)
        if opened is None or not opened.field("pull"):
            return
        number = int(opened.field("pull"))
        merged = await self._call("forge_pull_merge", {"number": number}, self._clock.time())
        if merged is not None and merged.field("status") == "merged":
            self._log.add("merged", self._index, self._clock.time())

    async def _commit(self, branch: str) -> bool:
        """Make a branch with one new file on the forge, which is what a push leaves there."""
        body = {
            "branch": "main",
            "new_branch": branch,
            "message": self._words(6),
            "content": base64.b64encode(self._words(60).encode()).decode(),
        }
        headers = {"Authorization": f"token {self._access.forge_token}", "Content-Type": "application/json"}
        path = f"{urlsplit(self._access.contents_url).path}/files/{branch}.txt"
        try:
            status, answer = await self._forge.post(path, json.dumps(body).encode(), headers)
        except WireError as error:
            return self._failed("commit", str(error))
        return status == 201 or self._failed("commit", f"{status} {answer.decode(errors='replace')[:200]}")

    async def _call(self, tool: str, arguments: dict[str, Any], due: float) -> Answer | None:
        """Call a tool over MCP and write down what its result showed; None when no answer came."""
        body = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        headers = {
            "Authorization": f"Bearer {self._access.mcp_token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2025-06-18",
        }
        began = self._clock.time()
        try:
            path = urlsplit(self._access.mcp_url).path
            _, answer = await self._tools.post(path, json.dumps(body).encode(), headers)
            result = json.loads(answer)["result"]
            blocks = [str(block.get("text", "")) for block in result["content"]]
        except (WireError, ValueError, KeyError, TypeError) as error:
            self._failed(tool, f"{type(error).__name__}: {error}")
            return None
        ended = self._clock.time()
        ok = not result.get("isError")
        seen = read_result(blocks)
        if not ok:
            self._failed(tool, blocks[0] if blocks else "")
        line = (due, began, ended, ok, seen.entries, seen.messages, seen.more)
        self._log.add("call", self._index, tool, *line)
        return Answer(blocks[0] if blocks else "", seen)

    def _failed(self, tool: str, words: str) -> bool:
        self._log.add("failed", self._index, tool, self._clock.time(), words[:200])
        return False

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(WORDS, k=count))
