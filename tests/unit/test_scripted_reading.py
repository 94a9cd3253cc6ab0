"""What the scripted worker makes of its prompts, the board's lines and notices."""

from __future__ import annotations

import pytest

from adapters.scripted.reading import (
    BoardLine,
    Message,
    area_of,
    board_lines,
    claim_text,
    fields_of,
    keeps,
    read_prompt,
    rivals,
    split_notices,
)
from agensh.clock import iso
from agensh.entries import Entry, EntryType
from router.mcp.notices import PendingMessage, render_notice
from router.prompt import Briefing, entry_line

T0 = 1_800_000_000.0
ME, PEER = "demo-worker2", "demo-worker11"


def briefing() -> str:
    return Briefing(
        worker=ME,
        team="demo",
        workers=12,
        kind="rebuild",
        clone_url="http://127.0.0.1:3000/demo/workspace.git",
        reference="/opt/task/reference/textutils",
        goal="",
        acceptance="",
        budget="1 h 30 min",
        claim_ttl="60 s",
        idle="5 s",
    ).worker_prompt()


def event(words: str, summary: str, at: float = T0) -> str:
    return f"[event] event_id=e1 {words.split(' from=')[0]} observed_at={iso(at)}" + (
        f" from={words.split(' from=')[1]} summary: {summary}" if " from=" in words else f" summary: {summary}"
    )


def test_the_real_worker_prompt_tells_all_it_needs() -> None:
    start = event("source=control kind=start", "you have started")
    entry = Entry(7, PEER, EntryType.FAIL, "tr: a range is taken literally", T0, has_detail=True)
    prompt = f"{briefing()}\n\n{start}\n\n==== SHARED CONTEXT ====\n{entry_line(entry, T0 + 30)}\n"
    told = read_prompt(prompt)
    assert (told.worker, told.repository) == (ME, "http://127.0.0.1:3000/demo/workspace.git")
    assert told.reference == "/opt/task/reference/textutils"
    assert told.deadline == T0 + 5400
    assert [(found.source, found.kind) for found in told.events] == [("control", "start")], "the example is no event"
    assert told.context == (BoardLine(PEER, EntryType.FAIL, "tr: a range is taken literally", 7),)


def test_a_later_prompt_has_only_events() -> None:
    dm = event(f"source=mattermost kind=direct_message from={PEER}", "head: your G3 is earlier; see summary: G4")
    told = read_prompt(
        f"{dm}\n{event('source=gitea kind=comment count=2', 'a | b')}\n\n==== SHARED CONTEXT ====\n(none)"
    )
    assert (told.worker, told.repository, told.reference, told.deadline) == ("", "", "", 0.0)
    assert [(found.kind, found.sender, found.summary) for found in told.events] == [
        ("direct_message", PEER, "head: your G3 is earlier; see summary: G4"),
        ("comment", "", "a | b"),
    ]
    assert told.has("comment")
    assert not told.has("wind_down")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("22 s are left. Wind down:", 22), ("3 s are left. Last call:", 3), ("1 h 5 min are left. Wind down:", 3900)],
)
def test_a_reminder_corrects_the_deadline(text: str, seconds: float) -> None:
    line = event("source=control kind=wind_down", "the run winds down", T0 + 100)
    assert read_prompt(f"{line}\n\n{text}\n").deadline == T0 + 100 + seconds


def test_a_message_cannot_pass_for_a_briefing_of_the_context() -> None:
    told = read_prompt(
        f"# You are `{ME}`\n\n==== SHARED CONTEXT ====\nG1 [{PEER}, FACT, 0.1 min ago] I am root-worker1"
    )
    assert told.worker == ME


def test_notices_are_parted_from_the_result_as_the_router_writes_them() -> None:
    entries = [
        Entry(4, PEER, EntryType.CLAIM, "head: the first lines [all]", T0),
        Entry(5, PEER, EntryType.FAIL, "odd [x/FAIL] text (G1)", T0),
    ]
    notice = render_notice([PendingMessage("e1", PEER, "core: ready?", T0)], entries, room=2000, now=T0 + 24)
    assert notice is not None
    own, found = split_notices(f"status=ok entries=0\nNothing.\n{notice.text}")
    assert own == "status=ok entries=0\nNothing."
    assert found == [
        Message(PEER, "core: ready?"),
        BoardLine(PEER, EntryType.FAIL, "odd [x/FAIL] text (G1)", 5),
        BoardLine(PEER, EntryType.CLAIM, "head: the first lines [all]", 4),
    ]
    before, again = split_notices(f"{notice.text}\n7 more: call board_pending\nstatus=ok\nrest")
    assert (before, len(again)) == ("status=ok\nrest", 3)


def test_without_a_header_nothing_is_a_notice() -> None:
    text = f"status=ok\n[{PEER}/DM +0.1m] this is what a file says"
    assert split_notices(text) == (text, [])


def test_the_first_line_is_read_as_words() -> None:
    assert fields_of('status=admitted label=G12 overlaps=1 note="two words"\nlabel=G13') == {
        "status": "admitted", "label": "G12", "overlaps": "1", "note": "two words",
    }  # fmt: skip
    assert fields_of("") == {}


def test_inactive_claims_are_seen_as_such() -> None:
    lines = board_lines(
        "status=ok entries=2\n"
        f"G1 [{PEER}, CLAIM, 2.0 min ago, no longer active] wc: counts\n"
        f"G2 [{PEER}, CLAIM, 1.0 min ago] cut: columns (+detail)"
    )
    assert [(line.seq, line.active, line.content) for line in lines] == [
        (1, False, "wc: counts"),
        (2, True, "cut: columns"),
    ]


@pytest.mark.parametrize(
    ("content", "area"),
    [
        ("wc: count lines", ("area", "wc")),
        ("audit wc: count lines", ("audit", "wc")),
        ("core: build and dispatch", ("core", "core")),
        ("the whole parser", None),
        ("wc", None),
    ],
)
def test_a_claim_names_its_area(content: str, area: tuple[str, str] | None) -> None:
    assert area_of(content) == area


@pytest.mark.parametrize("kind", ["core", "area", "audit"])
def test_what_it_claims_it_recognises_and_it_fits(kind: str) -> None:
    text = claim_text(kind, "core" if kind == "core" else "unexpand", "ü" * 200)
    assert len(text) == 100
    assert area_of(text) == (kind, "core" if kind == "core" else "unexpand")


def claim(seq: int, worker: str, content: str, *, active: bool = True) -> BoardLine:
    return BoardLine(worker, EntryType.CLAIM, content, seq, active)


@pytest.mark.parametrize(
    ("others", "mine", "keep"),
    [
        ([], 5, True),
        ([claim(4, PEER, "wc: x")], 5, False),
        ([claim(6, PEER, "wc: x")], 5, True),
        ([claim(6, PEER, "wc: x"), claim(3, "demo-worker3", "wc: y")], 5, False),
        ([claim(4, ME, "wc: my older one")], 5, True),
        ([claim(4, PEER, "audit wc: x"), claim(3, PEER, "cut: x")], 5, True),
        ([claim(4, PEER, "wc: x", active=False)], 5, True),
        ([BoardLine(PEER, EntryType.FAIL, "wc: x", 4)], 5, True),
    ],
)
def test_the_earlier_claim_keeps_the_area(others: list[BoardLine], mine: int, keep: bool) -> None:
    found = rivals(others, ME, ("area", "wc"))
    assert keeps(mine, found) is keep
    assert [line.seq for line in found] == sorted(line.seq for line in found)
