"""Which claims look alike: the table the threshold was set with."""

from __future__ import annotations

import pytest

from agensh.entries import Entry, EntryType
from board_service.overlap import THRESHOLD, overlaps, similarity

ALIKE = [
    ("implement wc", "wc: implementing it"),
    ("rewrite the sort tool", "Rewrite sort tool"),
    ("claim: cut (fields and bytes)", "I will do cut"),
    ("fix tab handling in expand", "expand: fix the handling of tabs"),
    ("implement sort -k", "sort -k keys"),
    ("numfmt --to=iec rounding", "numfmt rounding --to=iec"),
    ("src/parser.c tokenizer", "tokenizer in src/parser.c"),
    ("Taking tools/uniq.py", "uniq.py"),
    ("head and tail", "implement tail"),
    ("the tokeniser", "tokenizer"),
    ("error messages of tsort loops", "tsort: loop error messages"),
    ("examples/textutils/tools/wc.py", "working on wc"),
    ("implement wc, cut and tr", "tr"),
    ("✅ wc", "wc"),
]
DIFFERENT = [
    ("implement wc", "implement cut"),
    ("rewrite the sort tool", "rewrite the join tool"),
    ("implement head", "implement seq"),
    ("paste -d delimiters", "cut -d delimiters"),
    ("comm", "column"),
    ("add tests for nl", "add tests for od"),
    ("sort -k keys", "sort -m merge"),
    ("basename", "dirname"),
    ("expr arithmetic", "factor large numbers"),
    ("fold -w", "fmt -w"),
    ("src/parser.c tokenizer", "src/eval.c overflow"),
    ("README install section", "README design section"),
    ("cksum crc table", "sum checksum"),
    ("implement examples/textutils/tools/wc.py", "implement examples/textutils/tools/cut.py"),
    ("src/lexer/mod.rs", "src/parser/mod.rs"),
    ("textutils wc", "textutils tr"),
    ("实现 排序", "修复 连接"),
]
FALSE_ALARMS = [("fix tabs in expand", "fix tabs in unexpand")]
"""Names that differ by a syllable in otherwise equal claims: accepted, it costs a look."""


@pytest.mark.parametrize(("first", "second"), ALIKE + FALSE_ALARMS)
def test_these_claims_look_alike(first: str, second: str) -> None:
    assert similarity(first, second) >= THRESHOLD
    assert similarity(second, first) >= THRESHOLD


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_these_claims_do_not(first: str, second: str) -> None:
    assert similarity(first, second) < THRESHOLD
    assert similarity(second, first) < THRESHOLD


def test_claims_of_nothing_but_filler_are_compared_as_they_are() -> None:
    assert similarity("fix the tests", "fix the tests") == 100
    assert similarity("fix tests", "write tool") < THRESHOLD


def claim(seq: int, worker: str, content: str) -> Entry:
    return Entry(seq, worker, EntryType.CLAIM, content, 0.0, 3600.0)


def test_only_earlier_claims_of_others_the_earlier_first() -> None:
    new = claim(5, "w1", "sort")
    others = [claim(7, "w2", "sort"), claim(4, "w3", "sort it"), claim(2, "w2", "sort"), claim(3, "w1", "sort"), new]
    found = overlaps(new, [*others, claim(1, "w2", "join")], THRESHOLD)
    assert [overlap.entry.seq for overlap in found] == [2, 4]
    assert all(overlap.score == 100 for overlap in found)
