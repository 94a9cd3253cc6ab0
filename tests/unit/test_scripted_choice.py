"""Which piece of work the scripted worker takes, what it heeds, what it answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adapters.scripted.choice import AUDITS, Knowledge, Piece, audits_of, choose, failure_text, heeded
from adapters.scripted.playbook import Area, Defect, Playbook
from adapters.scripted.reading import BoardLine, Message
from adapters.scripted.replies import reply_to
from adapters.scripted.session import Job
from agensh.entries import EntryType

ME, PEER = "demo-worker1", "demo-worker2"
AREAS = [Area(tool, f"about {tool}") for tool in ("wc", "cut", "tr")]


def claim(content: str) -> BoardLine:
    return BoardLine(PEER, EntryType.CLAIM, content, 1)


def known(**values: Any) -> Knowledge:
    given: dict[str, Any] = {
        "me": ME, "areas": AREAS, "core_on_main": True, "on_main": (), "claims": (), "audits": {},
    }  # fmt: skip
    return Knowledge(**given | values)


@pytest.mark.parametrize(
    ("knowledge", "pieces"),
    [
        (known(core_on_main=False), {Piece("core", "core")}),
        (
            known(core_on_main=False, claims=[claim("core: build")]),
            {Piece("area", "wc"), Piece("area", "cut"), Piece("area", "tr")},
        ),
        (known(claims=[claim("wc: x")], on_main=["cut"]), {Piece("area", "tr")}),
        (known(claims=[claim("audit wc: x"), claim("cut: x")], stuck=["tr"]), {Piece("area", "wc")}),
        (known(on_main=["wc", "cut", "tr"]), {Piece("audit", "wc"), Piece("audit", "cut"), Piece("audit", "tr")}),
        (known(on_main=["wc", "cut", "tr"], audits={"wc": 1, "cut": 1}), {Piece("audit", "tr")}),
        (known(on_main=["wc", "cut", "tr"], mine=["wc"], claims=[claim("audit cut: x")]), {Piece("audit", "tr")}),
        (known(on_main=["wc", "cut", "tr"], claims=[claim("wc: again"), claim("cut: x")]), {Piece("audit", "tr")}),
        (known(on_main=["wc"], claims=[claim("cut: x"), claim("tr: x")], audits={"wc": AUDITS}), {None}),
        (known(on_main=["wc"], claims=[claim("cut: x"), claim("tr: x")], stuck=["wc"]), {None}),
    ],
)
def test_the_next_piece_is_one_of_those_that_are_due(knowledge: Knowledge, pieces: set[Piece | None]) -> None:
    found = {choose(knowledge, f"{ME}/{number}") for number in range(60)}
    assert found == pieces


def test_the_choice_follows_from_the_seed_and_spreads() -> None:
    many = known(areas=[Area(f"t{number}", "") for number in range(24)])
    assert choose(many, "demo-worker1/1/0/0") == choose(many, "demo-worker1/1/0/0")
    found = Counter(choose(many, f"demo-worker{number}/1/0/0") for number in range(1, 9))
    assert len(found) >= 5, "eight workers do not all run for the same area"


def test_an_idle_worker_audits_further() -> None:
    done = known(on_main=["wc", "cut", "tr"], audits={"wc": 2, "cut": 2, "tr": 3})
    assert choose(done, "x") is None
    assert choose(done, "x", audits=4) in {Piece("audit", "wc"), Piece("audit", "cut")}


def test_clean_audits_are_counted_from_facts() -> None:
    lines = [
        BoardLine(PEER, EntryType.FACT, "audit wc: 42 of 42 probes agree", 1),
        BoardLine(ME, EntryType.FACT, "audit wc: 42 of 42 probes agree", 2),
        BoardLine(ME, EntryType.FACT, "wc: counts bytes", 3),
        BoardLine(ME, EntryType.CLAIM, "audit cut: columns", 4),
    ]
    assert audits_of(lines) == {"wc": 2}


@pytest.fixture
def playbook() -> Playbook:
    faults: dict[str, tuple[Defect, ...]] = {
        "wc": (
            Defect(2, "basic", "a last line without an end is not counted", "a", "b"),
            Defect(3, "wide", "-L counts tabs as one", "c", "d"),
            Defect(4, "wide", "x" * 200, "e", "f"),
        )
    }
    paths = ("src/dispatch.py", "src/tools/{tool}.py", "tests/{tool}.jsonl")
    return Playbook(Path("nowhere"), (AREAS[0],), "core", *paths, faults)


@pytest.mark.parametrize(
    ("revision", "failures", "expected"),
    [
        (1, set(), 1),
        (1, {"wc: a last line without an end is not counted"}, 2),
        (1, {"wc: -L counts tabs as one"}, 3),
        (1, {failure_text("wc", "x" * 200)}, 4),
        (3, {"wc: -L counts tabs as one"}, 3),
        (1, {"cut: -L counts tabs as one", "wc: something else"}, 1),
    ],
)
def test_what_a_fail_refuted_is_not_tried_again(
    playbook: Playbook, revision: int, failures: set[str], expected: int
) -> None:
    assert heeded(playbook, "wc", revision, failures) == expected


def test_a_fail_fits_the_board() -> None:
    assert len(failure_text("wc", "x" * 200)) == 100


MINE = Job("area", "wc", "G7", "demo-worker1/area-wc-g7")


@pytest.mark.parametrize(
    ("text", "job", "answer"),
    [
        ("wc: your G7 is earlier than my G9, so it is yours; I release mine.", MINE, "Thanks, I keep wc (G7)."),
        ("cut: your G7 is earlier than my G9, so it is yours; I release mine.", MINE, None),
        ("core: when will it be on main?", MINE, "Thanks for asking: I am on wc (G7), it will be on main soon."),
        ("Where are you?", None, "Thanks for asking: I am between two pieces of work."),
        ("wc: main differs from the reference on `wc -L`; I fix it (G20).", None, "Thanks, go ahead with wc."),
        ("wc: we both changed src/dispatch.py; I kept your lines and mine.", MINE, None),
        ("Thanks, I keep wc (G7).", MINE, None),
        ("Thanks for asking: is that so?", None, None),
    ],
)
def test_answers_are_brief_and_due(text: str, job: Job | None, answer: str | None) -> None:
    assert reply_to(Message(PEER, text), job) == answer


@pytest.mark.parametrize("job", [None, MINE])
def test_an_answer_is_never_answered(job: Job | None) -> None:
    for text in ("wc: your G7 is earlier; I release mine.", "Any news?", "wc: main differs; I fix it (G20)."):
        answer = reply_to(Message(PEER, text), job)
        if answer is not None:
            assert reply_to(Message(ME, answer), MINE) is None
            assert reply_to(Message(ME, answer), None) is None
