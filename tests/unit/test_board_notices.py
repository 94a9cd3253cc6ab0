"""Pending notices: order, cap, text."""

from __future__ import annotations

from dataclasses import replace

from agensh.entries import Entry, EntryType
from board_service.notices import notice, notices, pick

NOW = 1000.0


def entry(seq: int, type_: EntryType = EntryType.FACT, worker: str = "demo-worker1") -> Entry:
    expires = NOW + 10 if type_ is EntryType.CLAIM else None
    return Entry(seq, worker, type_, f"content {seq}", NOW - 24, expires)


def test_the_text_of_a_notice() -> None:
    line = notice(entry(1, EntryType.FAIL), NOW)
    assert (line.id, line.text) == ("g1", "[demo-worker1/FAIL +0.4m] content 1 (G1)")
    assert notice(replace(entry(1), created_at=NOW + 5), NOW).text == "[demo-worker1/FACT +0.0m] content 1 (G1)"


def test_pressing_types_first_and_the_newest_of_a_type_when_there_is_no_room() -> None:
    types = [EntryType.PATCH_SUMMARY, EntryType.OBSERVED, EntryType.FACT, EntryType.CLAIM, EntryType.FAIL]
    unseen = [entry(1 + index, types[index % 5]) for index in range(15)]
    picked, counts = pick(unseen, "demo-worker2", NOW, 5)
    lines = notices(picked, counts, "main", 0, 15, NOW)
    assert [line.id for line in lines] == ["g5", "g10", "g15", "g9", "g14", "more-0-15"]
    assert lines[-1].text == ("10 more entries (1 CLAIM, 3 FACT, 3 OBSERVED, 3 PATCH_SUMMARY): GET /board/main?after=0")


def test_own_entries_and_claims_that_no_longer_stand_are_left_out() -> None:
    expired = replace(entry(2, EntryType.CLAIM), expires_at=NOW)
    released = replace(entry(3, EntryType.CLAIM), active=False)
    unseen = [entry(1, worker="demo-worker2"), expired, released, entry(4, EntryType.CLAIM)]
    picked, counts = pick(unseen, "demo-worker2", NOW, 10)
    assert [found.seq for found in picked] == [4]
    assert counts == {EntryType.CLAIM: 1}
    assert [line.id for line in notices(picked, counts, "main", 0, 4, NOW)] == ["g4"]


def test_one_left_out_entry_is_one_entry() -> None:
    picked, counts = pick([entry(1), entry(2)], "w", NOW, 1)
    assert notices(picked, counts, "b", 7, 9, NOW)[-1].text == "1 more entry (1 FACT): GET /board/b?after=7"
