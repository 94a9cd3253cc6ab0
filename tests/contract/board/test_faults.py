"""When the database fails: no word of it reaches a client, and what can go on does."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import httpx
import pymysql
import pytest
from sqlalchemy import event, make_url

from tests.contract.board.conftest import Api, Serve, eventually
from tests.support.mariadb import MariaDb
from tests.support.tcp_proxy import tcp_proxy

DATABASE_WORDS = ("sql", "mysql", "sqlite", "maria", "deadlock", "database", "traceback", "operationalerror", "lock")


def clean(answer: httpx.Response) -> dict[str, Any]:
    text = answer.text.lower()
    assert [word for word in DATABASE_WORDS if word in text] == []
    value: dict[str, Any] = answer.json()
    assert set(value) == {"status", "reason", "errors"}
    return value


async def fail_note(api: Api, who: str = "w1", **headers: str) -> httpx.Response:
    return await api.post("/board/main/note", who, json={"type": "FACT", "content": "x"}, headers=headers)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_full_disk_stops_writing_and_not_reading(serve: Serve) -> None:
    async with serve() as api:
        await api.note("FACT", "before")
        limit: list[int] = []
        engine = api.service.store.engine

        def cap(connection: Any, _record: object, _proxy: object) -> None:
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA max_page_count={limit[0] if limit else 1_000_000_000}")
            cursor.close()

        event.listen(engine.sync_engine, "checkout", cap)
        limit.append(1)  # SQLite raises it to the current size: no page may be added
        large = {"type": "FACT", "content": "x", "detail": "d" * 60_000}
        answer = await api.post("/board/main/note", json=large)
        value = clean(answer)
        assert (answer.status_code, value["errors"][0]["code"]) == (507, "disk_full")
        assert "disk full" in value["reason"]
        assert answer.headers["retry-after"]
        assert await api.labels() == ["G1"]
        assert await api.labels("/board/main/grep", q="before") == ["G1"]
        limit.clear()
        assert (await api.note("FACT", "after"))["label"] == "G2"


async def test_another_writer_holding_the_lock_is_waited_for_within_bounds(serve: Serve, database: str) -> None:
    async with serve(write_seconds=0.5) as api:
        await api.note("FACT", "before")
        engine = api.service.store.engine
        async with engine.connect() as other:
            if database.startswith("sqlite"):
                await other.execution_options(agensh_write=True)
            async with other.begin():
                await other.exec_driver_sql("UPDATE board_boards SET created_at = created_at")
                answer = await fail_note(api, **{"Idempotency-Key": "k"})
                assert (answer.status_code, clean(answer)["errors"][0]["code"]) == (503, "storage_unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert await api.labels() == ["G1"]
                assert (await api.http.get("/healthz")).status_code == 200
        # It was written meanwhile or is written now, once.
        answers: list[httpx.Response] = []

        async def written() -> bool:
            answers.append(await fail_note(api, **{"Idempotency-Key": "k"}))
            return answers[-1].status_code != 503

        await eventually(written, 60)
        assert (answers[-1].status_code, answers[-1].json()["label"]) == (200, "G2")
        assert (await api.get("/board/main")).json()["head"] == 2


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_killed_connections_are_not_noticed(serve: Serve, database: str, request: pytest.FixtureRequest) -> None:
    server: MariaDb = request.getfixturevalue("mariadb_server")
    async with serve() as api:
        for index in range(5):
            name = database.rsplit("/", 1)[1]
            rows = server.run(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'")
            for (number,) in rows:
                server.run(f"KILL {number}")
            assert (await api.note("FACT", f"n{index}"))["label"] == f"G{index + 1}"
            assert len(await api.labels("/board/main/grep", q="n")) == index + 1
        assert rows


async def test_passing_failures_are_retried_and_write_once(api: Api) -> None:
    """Each is reported once in the middle of a transaction, as the database words it."""
    engine = api.service.store.engine
    failures: list[Exception] = [sqlite3.OperationalError("database is locked")]
    if engine.dialect.name != "sqlite":
        # Lock wait, deadlock, gone away, lost connection, too many connections.
        failures = [pymysql.err.OperationalError(code, "words") for code in (1205, 1213, 2006, 2013, 1040)]
    left = list(failures)  # fewer than a transaction is tried again

    def fail(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("INSERT INTO board_entries") and left:
            raise left.pop()

    await api.note("FACT", "before")
    event.listen(engine.sync_engine, "before_cursor_execute", fail)
    # Naming a label makes the whole transaction necessary, on every database.
    assert (await api.note("PATCH_SUMMARY", "files=a | idea=closes G1 | evidence=ran it"))["label"] == "G2"
    assert left == []
    assert (await api.get("/board/main")).json()["head"] == 2  # all of them hit one note, which was written once


async def test_a_queue_that_is_full_says_when_to_come_back(serve: Serve) -> None:
    async with serve(queue_notes=3, batch_notes=1) as api:
        await api.note("FACT", "first")
        board = await api.service.board("main")
        async with board.lock:  # the writer cannot finish a batch
            sending = [asyncio.create_task(fail_note(api)) for _ in range(20)]
            done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            refused = [task.result() for task in done]
        assert refused
        for answer in refused:
            assert (answer.status_code, clean(answer)["errors"][0]["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"
        answers = await asyncio.gather(*sending)
        admitted = [answer.json()["gist_id"] for answer in answers if answer.status_code == 200]
        assert sorted(admitted) == list(range(2, 2 + len(admitted)))
        assert (await api.get("/board/main")).json()["head"] == 1 + len(admitted)


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_an_unreachable_database_is_503_and_not_ready(serve: Serve, database: str) -> None:
    port = make_url(database).port
    assert port is not None
    async with tcp_proxy(port) as proxy:
        url = make_url(database).set(port=proxy.port).render_as_string(hide_password=False)
        async with serve(db=url) as api:
            await api.note("FACT", "x")
            await api.auth("w2")
            proxy.refuse = True
            assert proxy.cut()
            for answer in (
                await fail_note(api, **{"Idempotency-Key": "k"}),
                await api.get("/board/main/note/G1"),
                await api.http.get("/readyz"),
                await api.http.get("/board/main", headers={"Authorization": "Bearer unknown"}),
            ):
                assert (answer.status_code, clean(answer)["errors"][0]["code"]) == (503, "storage_unavailable")
                assert answer.headers["retry-after"] == "2"
            assert (await api.http.get("/healthz")).status_code == 200
            assert await api.labels() == ["G1"]  # the memory still answers
            assert await api.labels("/board/main/grep", q="x") == ["G1"]
            proxy.refuse = False
            assert (await fail_note(api, **{"Idempotency-Key": "k"})).json()["gist_id"] == 2


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_lock_that_is_waited_for_in_vain_is_tried_again(
    serve: Serve, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    server: MariaDb = request.getfixturevalue("mariadb_server")
    ((before,),) = server.run("SELECT @@GLOBAL.innodb_lock_wait_timeout")
    server.run("SET GLOBAL innodb_lock_wait_timeout = 1")
    caplog.set_level("DEBUG", logger="board_service.appender")
    try:
        async with serve() as api:
            await api.note("FACT", "before")
            async with api.service.store.engine.connect() as other, other.begin():
                await other.exec_driver_sql("UPDATE board_boards SET created_at = created_at")
                writing = asyncio.create_task(fail_note(api))

                async def gave_up() -> bool:
                    return "the kept connection failed" in caplog.text

                await eventually(gave_up)
            assert (await writing).json()["label"] == "G2"
            assert (await api.note("FACT", "after"))["label"] == "G3"
    finally:
        server.run(f"SET GLOBAL innodb_lock_wait_timeout = {before}")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_mistake_of_its_own_is_one_sentence_on_the_short_way_too(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note is answered before all middleware, a detail behind it."""

    async def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("words of the inside")

    async with serve() as api:
        await api.note("FACT", "before")
        monkeypatch.setattr(api.service, "write", broken)
        monkeypatch.setattr(api.service, "unfold", broken)
        for answer in (await fail_note(api), await api.get("/board/main/note/G1")):
            assert (answer.status_code, clean(answer)["errors"][0]["code"]) == (500, "internal")
            assert "inside" not in answer.text
        assert await api.labels() == ["G1"]
