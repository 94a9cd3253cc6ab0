"""Merging a registration file in which both sides only add lines, and reading the team's check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.scripted.git import union
from adapters.scripted.landing import ahead, read_check

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


LISTING = """status=ok pulls=4
#12 [demo-worker2, open, can be merged, 0.1 min ago] cut: columns (demo-worker2/area-cut-g12)
#11 [demo-worker5, open, being checked or in conflict, 0.2 min ago] wc: lines (and words) (demo-worker5/area-wc-g9)
#9 [demo-worker3, open, can be merged, 0.4 min ago] tr: ranges (demo-worker3/audit-tr-g7)
#8 [demo-worker1, open, can be merged, 0.9 min ago] od: bytes (demo-worker1/area-od-g3)
"""


@pytest.mark.parametrize(("pull", "expected"), [(8, []), (9, [8]), (11, [8]), (12, [8, 11]), (99, [8, 11, 12])])
def test_older_pull_requests_that_add_to_the_registry_go_first(pull: int, expected: list[int]) -> None:
    assert ahead(LISTING, pull, "area") == expected
