"""The text that grep looks through, compared with looking at every entry."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from agensh.entries import Entry, EntryType
from board_service import history as module
from board_service.board import folded, grep_terms
from board_service.history import SEPARATOR, History

WORDS = ("tabs", "wc", "Straße", "cut", "utf-8", "100%", "a_b", "é", "ok", "wc wc", "🫠")
QUERIES = (
    "tabs",
    "wc&cut",
    "tabs,cut&é",
    "straße",
    "STRASSE",
    "a_b&100%",
    "zzz",
    "zzz,🫠",
    "w1",
    "w1&wc",
    "o",
    "wc w",
    "s",
)


def entries(count: int, seed: int = 1) -> list[Entry]:
    chance = random.Random(seed)
    return [
        Entry(seq, f"w{chance.randrange(3)}", EntryType.FACT, " ".join(chance.choices(WORDS, k=4)), 0.0)
        for seq in range(1, count + 1)
    ]


def naive(written: Sequence[Entry], q: str, before: int | None, limit: int) -> list[int]:
    texts = [(entry.seq, folded(entry.content, entry.worker)) for entry in reversed(written)]
    return [
        seq
        for seq, text in texts
        if (before is None or seq < before) and any(all(term in text for term in group) for group in grep_terms(q))
    ][:limit]


@pytest.fixture(params=[1, 5, 1000], ids="split from {}".format)
def _split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of looking into a block, whatever the number of places."""
    monkeypatch.setattr(module, "SPLIT_FROM", request.param)
    monkeypatch.setattr(module, "BLOCK", 16)


@pytest.mark.usefixtures("_split")
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
async def test_it_finds_what_a_look_at_every_entry_finds(count: int) -> None:
    written = entries(count)
    history = History(0, 1_000_000)
    history.extend(written)
    for q in QUERIES:
        for before in (None, 1, 2, 16, 17, 18, 33, 50, 200):
            for limit in (1, 3, 1000):
                found = await history.search(grep_terms(q), before, limit)
                assert found == (naive(written, q, before, limit), 0), (q, before, limit)


@pytest.mark.usefixtures("_split")
async def test_older_blocks_are_put_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    written = entries(100)
    history = History(70, 1_000_000)
    history.extend(written[70:])
    assert (history.floor, history.head) == (70, 100)
    for first, last in ((54, 70), (38, 54), (0, 38)):
        text = SEPARATOR.join(folded(entry.content, entry.worker) for entry in written[first:last])
        assert not history.prepend(text, last - first + 1)  # an entry is missing
        assert history.prepend(text, last - first)
        assert history.floor == first
        expected = [seq for seq in naive(written, "wc", None, 100) if seq > first]
        assert await history.search(grep_terms("wc"), None, 100) == (expected, first)


async def test_memory_is_bounded_and_gives_up_the_oldest() -> None:
    history = History(0, 200_000)
    written = entries(20_000)
    for start in range(0, len(written), 500):
        history.extend(written[start : start + 500])
    assert 0 < history.floor < 20_000
    assert history.full or history.size > 100_000
    assert history.size < 200_000 + 300_000  # a block more at most
    found, floor = await history.search(grep_terms("wc"), None, 100_000)
    assert found == [seq for seq in naive(written, "wc", None, 100_000) if seq > floor]


def test_a_gap_is_refused() -> None:
    history = History(0, 1_000)
    with pytest.raises(AssertionError, match="G2 does not follow G0"):
        history.extend(entries(2)[1:])
