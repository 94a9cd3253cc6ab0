"""Claims: expiry, release, look-alikes."""

from __future__ import annotations

from tests.contract.board.conftest import Api, Serve
from tests.support.clock import ManualClock


async def test_an_expired_claim_leaves_the_listing_and_stays_in_the_history(serve: Serve) -> None:
    clock = ManualClock()
    async with serve(clock, claim_seconds=60) as api:
        await api.note("CLAIM", "wc")
        await api.note("FACT", "fact")
        assert (await api.get("/board/main")).json()["entries"][0]["expires_at"] == (clock.time() + 60) * 1000
        await clock.advance(59)
        assert await api.labels() == ["G1", "G2"]
        await clock.advance(1)
        assert await api.labels() == await api.labels(after=0) == ["G2"]
        assert await api.labels(type="CLAIM") == []
        (found,) = (await api.get("/board/main/grep", q="wc")).json()["entries"]
        assert (found["label"], found["active"]) == ("G1", False)
        assert (await api.get("/board/main/note/G1")).json()["active"] is False
        assert (await api.note("CLAIM", "wc", who="w2"))["overlaps"] == []
        assert [line["id"] for line in (await api.get("/pending/w2", "w2")).json()["notices"]] == ["g2"]


async def test_releasing_ones_own_claim(api: Api) -> None:
    await api.note("CLAIM", "wc")
    answer = await api.post("/board/main/note/G1/release", "w2")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "not_yours")
    assert await api.labels() == ["G1"]
    for _ in range(2):  # again changes nothing
        answer = await api.post("/board/main/note/G1/release")
        assert (answer.status_code, answer.json()["status"]) == (200, "released")
        assert answer.json()["entry"]["active"] is False
    assert await api.labels() == []
    assert await api.labels("/board/main/grep", q="wc") == ["G1"]
    assert (await api.get("/board/main/note/G1")).json()["active"] is False
    assert (await api.get("/pending/w2", "w2")).json()["notices"] == []


async def test_what_cannot_be_released(api: Api) -> None:
    await api.note("FACT", "x")
    for label, status, code in (("G1", 422, "not_a_claim"), ("G9", 404, "no_entry"), ("9", 422, "label")):
        answer = await api.post(f"/board/main/note/{label}/release")
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (status, code)


async def test_a_patch_summary_releases_its_workers_claims_that_it_names(serve: Serve) -> None:
    async with serve() as api:
        await api.note("CLAIM", "wc")  # G1
        await api.note("CLAIM", "cut")
        await api.note("CLAIM", "tail", who="w2")
        await api.note("CLAIM", "head")
        await api.note("FACT", "about G4")
        await api.note("PATCH_SUMMARY", "files=wc.py | idea=closes G1, G3 and xG2 | evidence=12/12 pass")
        assert await api.labels(type="CLAIM") == ["G2", "G3", "G4"]
    async with serve() as api:  # it is stored, not only remembered
        assert await api.labels(type="CLAIM") == ["G2", "G3", "G4"]


async def test_a_claim_is_told_of_earlier_look_alikes_of_others(api: Api) -> None:
    assert (await api.note("CLAIM", "implement wc"))["overlaps"] == []
    assert (await api.note("CLAIM", "wc again, mine"))["overlaps"] == []  # one's own do not count
    await api.note("CLAIM", "implement cut", who="w2")
    await api.note("FACT", "wc counts bytes", who="w2")
    answer = await api.note("CLAIM", "WC", who="w3")
    assert answer["overlaps"] == [
        {"label": "G1", "worker": "w1", "content": "implement wc", "score": 100.0},
        {"label": "G2", "worker": "w1", "content": "wc again, mine", "score": 100.0},
    ]
    await api.post("/board/main/note/G1/release")
    assert [overlap["label"] for overlap in (await api.note("CLAIM", "wc", who="w4"))["overlaps"]] == ["G2", "G5"]
    # The earlier claimer hears of the later one.
    notices = (await api.get("/pending/w1")).json()["notices"]
    assert notices[0]["text"].startswith("[w2/CLAIM +0.0m] implement cut (G3)")
    assert "[w3/CLAIM +0.0m] WC (G5)" in [notice["text"] for notice in notices]


async def test_claims_survive_a_restart(serve: Serve) -> None:
    async with serve(ring_entries=1) as api:
        await api.note("CLAIM", "wc")
        for index in range(5):
            await api.note("FACT", f"n{index}")
    async with serve(ring_entries=1) as api:
        assert [overlap["label"] for overlap in (await api.note("CLAIM", "wc", who="w2"))["overlaps"]] == ["G1"]
