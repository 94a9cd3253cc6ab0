"""Appending over the kept connection of MySQL, and the way round it: never twice, never lost, never out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import make_url, text

from agensh.db import open_engine, retrying
from agensh.entries import DETAIL_CAP, EntryType
from board_service.board import Note
from board_service.database import prepare
from board_service.store import Head, Store
from tests.contract.board.conftest import Serve
from tests.support.mariadb import MariaDb
from tests.support.tcp_proxy import tcp_proxy

NOW = 1_800_000_000.0


def note(key: str, content: str = "x", type_: EntryType = EntryType.FACT, detail: str = "") -> Note:
    return Note("w1", type_, content, detail, f"k:{key}")


@pytest.fixture(params=["READ COMMITTED", "REPEATABLE READ"])
async def store(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Store]:
    await asyncio.to_thread(prepare, database)
    engine = open_engine(database, isolation=request.param)
    store = Store(engine)
    await store.ensure_board("main", NOW)
    try:
        yield store
    finally:
        await store.aclose()
        await engine.dispose()


async def append(store: Store, after: Head, *notes: Note) -> tuple[list[int], list[bool], Head]:
    done = await store.append("main", notes, NOW, 3600.0, after=after)
    return [entry.seq for entry in done.entries], list(done.repeated), done.head


async def test_known_keys_answer_with_their_first_entry(store: Store) -> None:
    assert await append(store, Head(), note("a"), note("b"), note("a")) == ([1, 2, 1], [False, False, True], Head(2))
    assert await append(store, Head(2), note("c"), note("b")) == ([3, 2], [False, True], Head(3))
    assert await append(store, Head(3), note("d")) == ([4], [False], Head(4))
    assert [entry.seq for entry in await store.after("main", 0, 10)] == [1, 2, 3, 4]


async def test_a_head_that_is_out_of_date_is_found_out(store: Store) -> None:
    assert (await append(store, Head(), note("a")))[0] == [1]
    assert (await append(store, Head(), note("b"), note("c")))[0] == [2, 3]
    assert (await append(store, Head(99), note("d")))[0] == [4]
    assert await store.head("main") == Head(4)


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_it_is_found_out_in_every_sql_mode(mariadb_server: MariaDb, database: str) -> None:
    await asyncio.to_thread(prepare, database)
    ((before,),) = mariadb_server.run("SELECT @@GLOBAL.sql_mode")
    mariadb_server.run("SET GLOBAL sql_mode = ''")
    try:
        engine = open_engine(database)
        store = Store(engine)
        await store.ensure_board("main", NOW)
        assert (await append(store, Head(7), note("a")))[0] == [1]
        assert (await append(store, Head(7), note("b"), note("c")))[0] == [2, 3]
        assert (await append(store, Head(3), note("d")))[0] == [4]
        assert await store.head("main") == Head(4)
        await store.aclose()
        await engine.dispose()
    finally:
        mariadb_server.run(f"SET GLOBAL sql_mode = '{before}'")


async def test_a_patch_summary_releases_what_it_names(store: Store) -> None:
    await append(store, Head(), note("a", type_=EntryType.CLAIM))
    summary = note("b", "files=a | idea=closes G1 | evidence=ran it", EntryType.PATCH_SUMMARY)
    assert (await append(store, Head(1), note("c"), summary))[2] == Head(3, releases=1)
    assert await store.claims("main", NOW) == []


async def test_texts_arrive_as_they_were_sent(store: Store) -> None:
    texts = ["it's", 'a "quote"', "back\\slash", "100% %s %(x)s", "🫠 é ß", "'; DROP TABLE board_entries; --", "a\\'b"]
    await append(store, Head(), *(note(str(index), value, detail=value) for index, value in enumerate(texts)))
    unfolded = [await store.unfold("main", seq) for seq in range(1, len(texts) + 1)]
    assert [(found[0].content, found[1]) for found in unfolded if found] == [(value, value) for value in texts]


async def test_a_large_batch_goes_in_pieces_and_in_one_transaction(store: Store) -> None:
    notes = [note(str(index), detail="\\" * DETAIL_CAP) for index in range(40)]
    assert (await append(store, Head(), *notes))[0] == list(range(1, 41))
    assert await store.unfold("main", 40) is not None
    # The last of the second batch is known: nothing of it may stay from the first try.
    again = [note(f"n{index}", detail="\\" * DETAIL_CAP) for index in range(39)]
    assert (await append(store, Head(40), *again, notes[0]))[0] == [*range(41, 80), 1]
    assert [entry.seq for entry in await store.after("main", 0, 100)] == list(range(1, 80))


async def test_two_stores_write_one_sequence_at_either_isolation(store: Store, database: str) -> None:
    engine = open_engine(database, isolation="REPEATABLE READ")
    other = Store(engine)
    try:

        async def write(own: Store, name: str) -> list[int]:
            head, seqs = Head(), []
            for index in range(25):
                found, _, head = await append(own, head, note(f"{name}{index}"), note(f"{name}-{index}"))
                seqs += found
            return seqs

        one, two = await asyncio.gather(write(store, "a"), write(other, "b"))
        assert sorted([*one, *two]) == list(range(1, 101))
        assert one == sorted(one)
        assert two == sorted(two)
        assert await store.head("main") == Head(100)
    finally:
        await other.aclose()
        await engine.dispose()


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_connections_cut_while_writing_lose_and_repeat_nothing(serve: Serve, database: str) -> None:
    port = make_url(database).port
    assert port is not None
    chance = random.Random(1)
    async with tcp_proxy(port) as proxy:
        url = make_url(database).set(port=proxy.port).render_as_string(hide_password=False)
        async with serve(db=url) as api:
            await api.auth("w1")
            writing = True

            async def cut() -> None:
                longest = 0.03
                while writing:
                    await asyncio.sleep(chance.uniform(0.001, longest))
                    longest *= 1.01  # a slow machine's writes, and a long login, get through as well in the end
                    proxy.cut()

            labels: dict[str, str] = {}

            async def write(key: str) -> None:
                while key not in labels:
                    body = {"type": "FACT", "content": key}
                    answer = await api.post("/board/main/note", json=body, headers={"Idempotency-Key": key})
                    assert answer.status_code in (200, 503), answer.text
                    if answer.status_code == 200:
                        labels[key] = answer.json()["label"]

            await write("first")
            cutting = asyncio.create_task(cut())
            for round_ in range(5):
                await asyncio.gather(*(write(f"k{round_}-{index}") for index in range(8)))
            writing = False
            await cutting
            shown = (await api.get("/board/main")).json()["entries"]
            assert {entry["content"]: entry["label"] for entry in shown} == labels
            assert [entry["seq"] for entry in shown] == list(range(1, 42))
            engine = api.service.store.engine

            async def count() -> int | None:
                async with engine.connect() as connection:
                    found: int | None = await connection.scalar(text("SELECT COUNT(*) FROM board_entries"))
                    return found

            assert await retrying(count) == 41
