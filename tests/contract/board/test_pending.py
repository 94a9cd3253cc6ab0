"""What an agent has not seen."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import event

from tests.contract.board.conftest import Api, Serve


async def test_shown_until_acknowledged_and_never_again(serve: Serve) -> None:
    async with serve() as api:
        await api.note("FAIL", "tabs break wc")
        for _ in range(2):  # at least once
            value = (await api.get("/pending/w2", "w2")).json()
            assert (value["agent"], value["cursor"]) == ("w2", 1)
            (line,) = value["notices"]
            assert line["id"] == "g1"
            assert re.fullmatch(r"\[w1/FAIL \+0\.\dm\] tabs break wc \(G1\)", line["text"])
        assert (await api.get("/pending/w2", "w2", ack=1)).json() == {"agent": "w2", "notices": [], "cursor": 1}
        assert (await api.get("/pending/w2", "w2")).json()["notices"] == []
        assert (await api.get("/pending/w1", "w1")).json()["notices"] == []  # never one's own
        await api.note("FACT", "new", who="w3")
    async with serve() as api:  # the cursor is kept
        assert [line["id"] for line in (await api.get("/pending/w2", "admin")).json()["notices"]] == ["g2"]


async def test_a_cursor_moves_forward_only_and_not_beyond_the_head(api: Api) -> None:
    for index in range(3):
        await api.note("FACT", f"n{index}")
    await api.get("/pending/w2", "w2", ack=2)
    assert [line["id"] for line in (await api.get("/pending/w2", "w2", ack=1)).json()["notices"]] == ["g3"]
    assert (await api.get("/pending/w2", "w2", ack=99)).json()["cursor"] == 3
    await api.note("FACT", "n4")
    assert [line["id"] for line in (await api.get("/pending/w2", "w2")).json()["notices"]] == ["g4"]


async def test_capped_pressing_first_the_rest_counted(serve: Serve) -> None:
    for ring in (100, 2):  # from the memory, and from the database
        async with serve(ring_entries=ring, pending_notices=3) as api:
            head = (await api.get("/board/main")).json()["head"]
            who = f"reader{ring}"
            await api.get(f"/pending/{who}", who, ack=head)
            await api.note("PATCH_SUMMARY", "files=a | idea=b | evidence=ok 1")
            await api.note("OBSERVED", "n2")
            await api.note("FACT", "n3")
            await api.note("CLAIM", "n4")
            await api.note("FAIL", "n5")
            await api.note("FAIL", "own", who=who)
            value = (await api.get(f"/pending/{who}", who)).json()
            assert [line["id"] for line in value["notices"]][:3] == [f"g{head + 5}", f"g{head + 4}", f"g{head + 3}"]
            assert value["notices"][3]["text"] == (
                f"2 more entries (1 OBSERVED, 1 PATCH_SUMMARY): GET /board/main?after={head}"
            )
            assert value["cursor"] == head + 6
            assert (await api.get(f"/pending/{who}", who, ack=value["cursor"])).json()["notices"] == []


async def test_who_is_far_behind_is_told_the_newest_and_the_count_of_the_rest(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("board_service.service.REACH", 4)
    for ring in (100, 2, 6):
        async with serve(ring_entries=ring, pending_notices=3) as api:
            who = f"late{ring}"
            head = (await api.get("/board/main")).json()["head"]
            await api.get(f"/pending/{who}", who, ack=head)
            for index in range(10):
                await api.note("FAIL" if index == 0 else "FACT", f"n{index}")
            value = (await api.get(f"/pending/{who}", who)).json()
            *lines, rest = value["notices"]
            more = {100: "7 FACT", 2: "1 FACT, 6 older", 6: "3 FACT, 4 older"}[ring]
            assert rest["text"] == f"7 more entries ({more}): GET /board/main?after={head}"
            assert len(lines) == 3
            assert ("n0" in lines[0]["text"]) is (ring == 100)
            assert value["cursor"] == head + 10


async def test_only_the_agent_itself_and_admins(api: Api) -> None:
    answer = await api.get("/pending/w2", "w1")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "other_agent")
    assert (await api.get("/pending/w2", "admin", board="main")).status_code == 200
    assert (await api.get("/pending/w1", "w1", board="other")).status_code == 403
    for ack in ("x", "-1"):
        assert (await api.get("/pending/w1", "w1", ack=ack)).status_code == 422


async def test_with_nothing_new_it_touches_no_database(serve: Serve) -> None:
    async with serve(follow_seconds=3600) as api:
        await api.note("FACT", "x")
        await api.get("/pending/w2", "w2", ack=1)
        statements: list[str] = []

        def count(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            statements.append(statement)

        engine = api.service.store.engine.sync_engine
        event.listen(engine, "before_cursor_execute", count)
        for _ in range(3):
            assert (await api.get("/pending/w2", "w2", ack=1)).json()["notices"] == []
        assert statements == []
        await api.get("/board/main/note/G1")  # the counter does count
        assert statements
