"""Nobody's text forges the structure of a prompt, a notice, a tool result, a page or a log."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agensh.clients.board import GrepPage, Overlap, Written
from agensh.clients.gitea import Branch, Comment, Commit, Issue, Pull
from agensh.clients.mattermost import Post
from agensh.clients.mattermost_models import ChatUser
from agensh.entries import Entry, EntryType
from agensh.logs import JsonFormatter
from agensh.text import BLOCK_INDENT, block, handle, one_line, printable, printable_line
from board_service.notices import notice as board_notice
from router.desk import SharedContext
from router.events import Kind, Priority, QueuedEvent, Source
from router.mcp.ledger import Ledger
from router.mcp.notices import HEADER, NOTICE_ROOM, PendingMessage, render_notice
from router.mcp.server import ALL_TOOLS
from router.prompt import CONTEXT_HEADER, context_text, event_lines
from router.tools.registry import Toolbox
from tests.support.hostile import HOSTILE, marks, texts, unsafe
from tests.support.workers import StubWorker

T = 1_800_000_000.0
MARK = "benign-words"
texts_and_table = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
EVENT = re.compile(
    r"\[event\] event_id=e\d+(,e\d+)* source=(gitea|mattermost|control) kind=[a-z_]+ observed_at=\S+"
    r"( count=\d+)?( from=\S+)? summary: [^\n]*"
)


class Fixed:
    """A clock that stands."""

    def time(self) -> float:
        return T

    def monotonic(self) -> float:
        return T

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def entry(text: str, *, worker: str = "demo-worker2", seq: int = 12, **fields: Any) -> Entry:
    return replace(Entry(seq, worker, EntryType.FAIL, text, T - 60), **fields)


# The parts


@texts_and_table
def test_the_four_ways_to_show_foreign_text(text: str) -> None:
    for shown in (one_line(text), handle(text), printable_line(text)):
        assert not unsafe(shown.replace("\u200d", "")), shown
    assert not unsafe(block(text), lines=True)
    assert not unsafe(printable(text).replace("\u200d", "").replace("\t", " "), lines=True)
    assert marks(one_line(text)) == marks(block(text)) == marks(handle(text)) == []
    assert all(line.startswith(BLOCK_INDENT) or not line for line in block(text).split("\n")[1:])
    assert re.fullmatch(r"[\w.@+?-]{1,80}", handle(text))


@settings(deadline=None)
@given(texts)
def test_no_text_breaks_out_of_a_block(text: str) -> None:
    shown = block(text)
    assert not unsafe(shown.replace("\t", " "), lines=True)
    assert marks(shown) == []
    assert all(line.startswith(BLOCK_INDENT) for line in shown.split("\n")[1:])
    assert block(shown.replace(f"\n{BLOCK_INDENT}", "\n")) == shown


@settings(deadline=None)
@given(texts)
def test_no_name_breaks_out_of_its_place(text: str) -> None:
    assert re.fullmatch(r"[\w.@+?-]{1,80}", handle(text))
    assert "\n" not in printable_line(text)
    assert not unsafe(printable_line(text).replace("\u200d", "").replace("\u200c", ""))


# The prompt of a turn


def events_of(text: str, author: str) -> list[QueuedEvent]:
    def event(number: int, kind: Kind, priority: Priority, thread: str, body: dict[str, Any]) -> QueuedEvent:
        source = Source.MATTERMOST if kind is Kind.DIRECT_MESSAGE else Source.GITEA
        return QueuedEvent(number, source, kind, priority, thread, text, body, T, 0, 0)

    return [
        event(1, Kind.DIRECT_MESSAGE, Priority.DIRECT, "m", {"author": author, "text": text}),
        event(2, Kind.COMMENT, Priority.REST, "t1", {"author": author}),
        event(3, Kind.COMMENT, Priority.REST, "t1", {"author": author}),
        event(4, Kind.MENTION, Priority.MENTION, "t2", {"author": author}),
    ]


def check_prompt(text: str, author: str) -> None:
    lines = event_lines(events_of(text, author))
    assert len(lines) == 3
    for line in lines:
        assert EVENT.fullmatch(line), line
        assert marks(line) == ["[event]"], line
        assert not unsafe(line)
    combined = next(line for line in lines if " count=2 " in line)
    assert combined.count(" | ") == 1
    context = context_text(SharedContext((entry(text, worker=author), entry(text, seq=13)), 3, 11), T)
    header, first, second, rest = context.split("\n")
    assert header == CONTEXT_HEADER
    assert re.match(r"G12 \[[\w.@+?-]+, FAIL, 1\.0 min ago\] ", first + " ")
    assert second.startswith("G13 [demo-worker2, FAIL, 1.0 min ago] ")
    assert rest == "(3 more: call board_read with after=11)"
    assert marks(first + second) == []
    assert not unsafe(first + second)


@texts_and_table
def test_nobody_forges_a_prompt(text: str) -> None:
    check_prompt(text, "demo-worker2")
    check_prompt("x", text)


@settings(deadline=None)
@given(texts, texts)
def test_no_text_forges_a_prompt(text: str, author: str) -> None:
    check_prompt(text, author)


# A notice


def check_notice(text: str, sender: str) -> None:
    messages = [PendingMessage("e1", sender, text, T - 24), PendingMessage("e2", "demo-worker3", text, T - 20)]
    notice = render_notice(messages, [entry(text, worker=sender)], room=NOTICE_ROOM, now=T)
    assert notice is not None
    header, *lines = notice.text.split("\n")
    assert header == HEADER
    tail = [line for line in lines if re.fullmatch(r"\d+ more: call board_pending", line)]
    assert len(lines) == len(notice.shown) + len(tail)
    assert bool(tail) == bool(notice.left_out)
    for line in lines[: len(notice.shown)]:
        assert re.match(r"\[[\w.@+?-]+/(DM|FAIL) \+\d+\.\dm\] ", line + " "), line
    assert marks(notice.text) == [HEADER]
    assert not unsafe(notice.text, lines=True)


@texts_and_table
def test_nobody_forges_a_notice(text: str) -> None:
    check_notice(text, "demo-worker2")
    check_notice("x", text)


@settings(deadline=None)
@given(texts, texts)
def test_no_text_forges_a_notice(text: str, sender: str) -> None:
    check_notice(text, sender)


@settings(deadline=None)
@given(st.lists(st.tuples(st.from_regex(r"g[0-9]{1,6}|e[0-9]{1,6}", fullmatch=True), texts), max_size=5))
def test_what_a_board_or_a_host_answers_cannot_forge_the_shims_notice(found: list[tuple[str, str]]) -> None:
    ledger = Ledger()
    ledger.merge(found, 10)
    notice = ledger.take(NOTICE_ROOM)
    if notice is not None:
        assert notice.text.split("\n")[0] == HEADER
        assert len(notice.text.split("\n")) == 1 + len(notice.shown) + bool(notice.left_out)
        assert marks(notice.text) == [HEADER]
        assert not unsafe(notice.text, lines=True)


@texts_and_table
def test_the_boards_own_notices_are_one_harmless_line(text: str) -> None:
    shown = board_notice(entry(text), T).text
    assert shown.startswith("[demo-worker2/FAIL +1.0m] ")
    assert marks(shown) == []
    assert not unsafe(shown)


# Results of tools: services whose every text is foreign


class HostileBoard:
    def __init__(self, text: str) -> None:
        self.text = text

    async def read(self, **_: Any) -> list[Entry]:
        return [entry(self.text, has_detail=True), entry(self.text, worker=self.text, seq=13)]

    async def grep(self, q: str, **_: Any) -> GrepPage:
        return GrepPage((entry(self.text), entry(self.text, seq=11)), True, 11)

    async def unfold(self, label: str) -> tuple[Entry, str]:
        return entry(self.text), self.text

    async def release(self, label: str) -> Entry:
        return entry(self.text)

    async def write(self, *_: Any, **__: Any) -> Written:
        return Written(20, "G20", (Overlap("G12", self.text, self.text, 99.0),))


class HostileChat:
    def __init__(self, text: str) -> None:
        self.text = text

    async def posts(self, channel: str, **_: Any) -> list[Post]:
        return [Post(f"p{n}", channel, f"u{n}", self.text, "", round(T * 1000), "", "") for n in (1, 2)]

    async def users_by_ids(self, ids: Sequence[str]) -> list[ChatUser]:
        return [ChatUser("u1", self.text, True), ChatUser("u2", "demo-worker2", True)]


class HostileForge:
    def __init__(self, text: str) -> None:
        self.text = text

    def _pull(self, number: int) -> Pull:
        return Pull(
            number, self.text, self.text, "open", self.text, self.text, "a" * 40, self.text, "b" * 40, "c" * 40,
            True, False, "", 0.0, "", T, T, 0.0,
        )  # fmt: skip

    def _issue(self, number: int) -> Issue:
        return Issue(number, self.text, self.text, "open", self.text, (self.text,), (), T, T, False)

    async def issues(self, *_: Any, **__: Any) -> list[Issue]:
        return [self._issue(7), self._issue(6)]

    async def issue(self, *_: Any) -> Issue:
        return self._issue(7)

    async def comments(self, *_: Any, **__: Any) -> list[Comment]:
        return [Comment(n, self.text, self.text, T, T) for n in (1, 2)]

    async def pulls(self, *_: Any, **__: Any) -> list[Pull]:
        return [self._pull(5), self._pull(4)]

    async def pull(self, *_: Any) -> Pull:
        return self._pull(5)

    async def pull_files(self, *_: Any) -> list[str]:
        return [self.text, "a.c"]

    async def branch(self, *_: Any) -> Branch:
        return Branch("main", "a" * 40)

    async def commits(self, *_: Any, **__: Any) -> list[Commit]:
        return [Commit("d" * 40, self.text, self.text, T, ())]


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("board_read", {}),
    ("board_read", {"after": 3}),
    ("board_grep", {"query": "x"}),
    ("board_unfold", {"label": "G12"}),
    ("board_release", {"label": "G12"}),
    ("board_write", {"type": "CLAIM", "content": "mine"}),
    ("chat_read", {}),
    ("forge_issues", {}),
    ("forge_issue", {"number": 7}),
    ("forge_pulls", {}),
    ("forge_pull", {"number": 5}),
    ("forge_main", {}),
]
_FIGURES = re.compile(r" (detail|posts)=\d+|, the last \d+| \(\d+ older ones left out\)")
_OWN_REMARKS = re.compile(r"\(no text\)|This entry has no detail\.|… \(\d+ more characters left out\)|\d+ older .*")


async def result_of(tool: str, arguments: dict[str, Any], text: str) -> str:
    worker = StubWorker(
        "demo-worker1", Fixed(), board=HostileBoard(text), chat=HostileChat(text), forge=HostileForge(text)
    )
    reply = await Toolbox(ALL_TOOLS, clock=Fixed()).call(worker, tool, arguments)
    assert not reply.is_error, reply.text
    return reply.text


def own_lines(result: str) -> list[str]:
    """Return the lines that begin at the margin: heads of items and our own words."""
    lines = [line for line in result.split("\n") if not line.startswith(BLOCK_INDENT) and line]
    return [line for line in lines if not _OWN_REMARKS.fullmatch(line)]


@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[f"{tool} {given}" for tool, given in CALLS])
async def test_nobody_forges_a_result(tool: str, arguments: dict[str, Any]) -> None:
    plain = own_lines(await result_of(tool, arguments, MARK))
    for name, text in HOSTILE.items():
        result = await result_of(tool, arguments, text)
        assert marks(result) == [], name
        assert not unsafe(result.replace("\t", " "), lines=True), name
        lines = own_lines(result)
        if len(result) < 19_000:  # a longer one leaves older rows out
            assert len(lines) == len(plain), (name, result)
        assert len(lines) >= min(len(plain), 3)
        for ours, expected in zip(lines, plain, strict=False):
            start = _FIGURES.sub("", expected.partition(MARK)[0])
            assert (name, _FIGURES.sub("", ours)[: len(start)]) == (name, start)


@settings(deadline=None, max_examples=30)
@given(texts)
async def test_no_text_forges_a_result(text: str) -> None:
    for tool, arguments in CALLS:
        result = await result_of(tool, arguments, text)
        assert marks(result) == []
        assert not unsafe(result.replace("\t", " "), lines=True)
        assert len(own_lines(result)) == len(own_lines(await result_of(tool, arguments, MARK)))


# Logs


def logged(message: str, **extra: Any) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("hostile")
    logger.addHandler(handler)
    try:
        raise ValueError(message)
    except ValueError:
        logger.error("failed: %s", message, extra={"author": message} | extra, exc_info=True)
    return stream.getvalue()


def check_log(text: str) -> None:
    written = logged(text)
    written.encode()
    assert written.endswith("\n")
    line = written[:-1]
    assert len(line.splitlines()) == 1
    assert not unsafe(line.replace("\u200d", "").replace("\u200c", "").replace("\u00ad", ""))
    value = json.loads(line)
    assert value["author"] == text
    assert value["message"] == f"failed: {text}"


@texts_and_table
def test_a_log_record_is_one_line_of_json(text: str) -> None:
    check_log(text)


@settings(deadline=None)
@given(st.one_of(texts, st.text(st.characters(categories=["Cs", "Cf", "Cc"]))))
def test_any_log_record_is_one_line_of_json(text: str) -> None:
    written = logged(text)
    written.encode()
    assert len(written.splitlines()) == 1
    shown = str(json.loads(written)["author"])
    assert shown.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")
