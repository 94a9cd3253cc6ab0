"""The listing and grep."""

from __future__ import annotations

from typing import Any

from tests.contract.board.conftest import Api, Serve


async def test_the_listing_is_the_newest_ascending_or_what_follows(api: Api) -> None:
    for index in range(1, 11):
        await api.note("FACT" if index % 2 else "FAIL", f"n{index}", "detail")
    assert await api.labels(limit=3) == ["G8", "G9", "G10"]
    assert await api.labels(after=3, limit=2) == ["G4", "G5"]
    assert await api.labels(after=10) == await api.labels(after=99) == []
    assert await api.labels(type="FAIL") == ["G2", "G4", "G6", "G8", "G10"]
    assert await api.labels(type="FAIL", limit=2) == ["G8", "G10"]
    assert await api.labels(type="FAIL", after=4, limit=1) == ["G6"]
    assert "detail" not in (await api.get("/board/main")).json()["entries"][0]


async def test_the_listing_reaches_behind_the_memory(serve: Serve) -> None:
    async with serve(ring_entries=4) as api:
        for index in range(1, 21):
            await api.note("FACT" if index % 2 else "FAIL", f"n{index}")
        assert await api.labels(limit=20) == [f"G{seq}" for seq in range(1, 21)]
        assert await api.labels(limit=3) == ["G18", "G19", "G20"]
        assert await api.labels(after=0, limit=2) == ["G1", "G2"]
        assert await api.labels(type="FAIL", limit=6) == ["G10", "G12", "G14", "G16", "G18", "G20"]
    async with serve(ring_entries=4) as api:
        assert await api.labels(limit=20) == [f"G{seq}" for seq in range(1, 21)]


BAD_PARAMETERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"limit": 0}, ["limit", "'0'"]),
    ({"limit": 2001}, ["limit", "2000"]),
    ({"after": -1}, ["after", "'-1'"]),
    ({"after": "x"}, ["after", "'x'"]),
    ({"after": 1 << 70}, ["after"]),
    ({"type": "NOTE"}, ["type", "'NOTE'", "OBSERVED", "PATCH_SUMMARY"]),
]


async def test_bad_parameters_are_named(api: Api) -> None:
    for params, words in BAD_PARAMETERS:
        answer = await api.get("/board/main", **params)
        assert (params, answer.status_code, answer.json()["status"]) == (params, 422, "rejected")
        assert [word for word in words if word not in answer.json()["reason"]] == []


async def test_an_empty_board(api: Api) -> None:
    assert (await api.get("/board/main")).json() == {"board": "main", "head": 0, "entries": []}
    assert (await api.get("/board/main/grep", q="x")).json() == {
        "board": "main", "q": "x", "entries": [], "more": False, "next_before": None,
    }  # fmt: skip


TEXTS = [
    "my_module is slow",  # G1
    "myXmodule is fast",
    "100% of cases",
    "1000 cases",
    "C:\\tmp is full",  # G5
    "C:/tmp is full",
    'a\'b "c" -- ;',
    "ÄÖÜ Straße",
    "(a+)+$",
    "sort breaks on tabs",  # G10
    "sort breaks on blanks",
]


FOUND = {
    "my_module": ["G1"],
    "MY_MODULE": ["G1"],
    "100%": ["G3"],
    "%": ["G3"],
    "_": ["G1"],
    "C:\\tmp": ["G5"],
    "\\": ["G5"],
    "a'b": ["G7"],
    '"c" --': ["G7"],
    "äöü": ["G8"],
    "STRASSE": ["G8"],
    "(a+)+$": ["G9"],
    "aaaa(a+)+$": [],
    "sort&tabs": ["G10"],
    "sort & breaks & blanks , 100%": ["G11", "G3"],
    "tabs&blanks,slow&my": ["G1"],
    "sort,slow": ["G11", "G10", "G1"],
    "w1&slow": ["G1"],
    "w2": ["G11"],
    "nowhere": [],
}


async def test_grep_takes_everything_literally(api: Api) -> None:
    for index, text in enumerate(TEXTS, start=1):
        await api.note("FACT", text, who="w2" if index == len(TEXTS) else "w1")
    assert {q: await api.labels("/board/main/grep", q=q) for q in FOUND} == FOUND


async def test_grep_goes_through_all_history_in_pages(serve: Serve) -> None:
    async with serve(ring_entries=2) as api:
        for index in range(1, 8):
            await api.note("FACT", f"hit {index}" if index != 4 else "other")
        first = (await api.get("/board/main/grep", q="hit", limit=4)).json()
        assert [entry["label"] for entry in first["entries"]] == ["G7", "G6", "G5", "G3"]
        assert (first["more"], first["next_before"]) == (True, 3)
        last = (await api.get("/board/main/grep", q="hit", limit=4, before=3)).json()
        assert [entry["label"] for entry in last["entries"]] == ["G2", "G1"]
        assert (last["more"], last["next_before"]) == (False, None)


async def test_grep_refuses(api: Api) -> None:
    for q, code, words in (
        ("", "q_empty", "empty"),
        (" ,&", "q_empty", "empty"),
        ("x" * 10_000, "q_too_long", "at most 500"),
        ("x" * 20_000, "query_too_long", "more than 16384 bytes"),
    ):
        answer = await api.get("/board/main/grep", q=q)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code)
        assert words in answer.json()["reason"]
