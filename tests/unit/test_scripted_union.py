"""Merging a registration file in which both sides only add lines, and reading the team's check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.scripted.git import union
from adapters.scripted.landing import read_check

BASE = "TOOLS = {\n    # tools\n}\n"


def registry(*tools: str) -> str:
    return "TOOLS = {\n    # tools\n" + "".join(f"    {tool},\n" for tool in tools) + "}\n"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        (registry(), registry("wc"), registry("cut"), registry("cut", "wc")),
        (registry("a"), registry("a", "wc"), registry("a", "cut", "tr"), registry("a", "cut", "tr", "wc")),
        (registry(), registry("wc", "tr"), registry("cut"), registry("cut", "wc", "tr")),
        (registry(), registry("wc"), registry("wc"), registry("wc")),
        (registry("a"), registry("a"), registry("a", "b"), registry("a", "b")),
        ("", "one\n", "two\n", "two\none\n"),
        (registry("a"), registry("wc"), registry("a", "cut"), None),
        (registry("a"), registry("a", "wc"), registry("cut"), None),
        (registry("a", "b"), registry("b", "a"), registry("a", "b", "c"), None),
    ],
)
def test_both_sides_lines_stay_or_somebody_has_to_think(base: str, ours: str, theirs: str, merged: str | None) -> None:
    assert union(base, ours, theirs) == merged


@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.lists(st.sampled_from("ijklmnop"), unique=True))
def test_nothing_is_lost_and_nothing_doubled(ours: list[str], theirs: list[str]) -> None:
    merged = union(registry("x"), registry("x", *ours), registry("x", *theirs))
    assert merged is not None
    assert merged == registry("x", *theirs, *ours)


@pytest.mark.parametrize(
    ("output", "ok", "summary", "broken"),
    [
        ("45 of 45 cases pass\n", True, "45 of 45 cases pass", set()),
        (
            "FAIL wc-0003 'wc -l a': exit code 1, expected 0\nFAIL re-name-0001 'x': y\n43 of 45 cases pass\n",
            False,
            "43 of 45 cases pass",
            {"wc", "re-name"},
        ),
        ("compile.sh ended with 2\n", False, "compile.sh ended with 2", set()),
    ],
)
def test_the_check_is_read(output: str, ok: bool, summary: str, broken: set[str]) -> None:
    check = read_check(ok, output)
    assert (check.ok, check.summary, check.broken) == (ok, summary, frozenset(broken))
