"""What comes between two steps: another call, another process, a commit whose answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only

from agensh.clients.board import BoardClient
from agensh.clock import SystemClock
from agensh.db import open_engine
from agensh.entries import EntryType
from board_service.auth import Role, TokenBook
from board_service.board import Note, grep_terms
from board_service.database import prepare
from board_service.history import History
from board_service.service import BoardService
from board_service.settings import BoardSettings
from board_service.store import Head, Store
from tests.contract.board.conftest import Api, Serve, eventually
from tests.support.mariadb import MariaDb
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

NOW = 1_800_000_000.0


def note(content: str) -> Note:
    return Note("other", EntryType.FACT, content, "", f"k:{content}")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(url)
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[TcpProxy, AsyncEngine]]:
    there = make_url(url)
    assert there.port is not None
    async with tcp_proxy(there.port) as proxy:
        engine = open_engine(there.set(port=proxy.port).render_as_string(hide_password=False))
        try:
            yield proxy, engine
        finally:
            await engine.dispose()


@pytest.mark.parametrize("known_head", [True, False], ids=["one round trip", "thorough"])
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_who_commits_late_is_skipped_on_no_way_of_reading(
    serve: Serve, database: str, mariadb_server: MariaDb, known_head: bool
) -> None:
    """One process has its number and has not committed; the next number waits for it, and so does every cursor."""
    async with serve(follow_seconds=0.05) as api, opened(database) as engine:
        late = Store(engine)
        await late.ensure_board("main", NOW)
        token = (await api.auth("w1"))["Authorization"][7:]
        if not known_head:
            await late.append("main", [note("unseen")], NOW, 3600.0)  # so that what the service expects is wrong
        first = 1 if known_head else 2
        about_to_commit, go_on = asyncio.Event(), asyncio.Event()

        def wait(_connection: object) -> None:
            about_to_commit.set()
            await_only(go_on.wait())

        event.listen(engine.sync_engine, "commit", wait)
        async with (
            BoardClient(api.url, token, "main") as client,
            BoardClient(api.url, token, "main") as writer,
            asyncio.timeout(60),
        ):
            seen: dict[str, list[int]] = {"stream": [], "read": [], "pending": []}

            async def stream() -> None:
                async for entry in client.stream(0):
                    seen["stream"].append(entry.seq)

            async def poll() -> None:
                seen["read"] += [entry.seq for entry in await client.read(after=max(seen["read"], default=0))]
                ack = max(seen["pending"], default=0)
                lines = (await api.get("/pending/r", "admin", board="main", ack=ack)).json()["notices"]
                seen["pending"] += [int(line["id"][1:]) for line in lines]

            streaming = asyncio.create_task(stream())
            appending = asyncio.create_task(late.append("main", [note("late")], NOW, 3600.0))
            await about_to_commit.wait()
            writing = asyncio.create_task(writer.write("FACT", "early"))
            query = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"

            async def waits() -> bool:
                return await asyncio.to_thread(mariadb_server.run, query) == [(1,)]

            await eventually(waits)
            for _ in range(5):
                await poll()
            assert not writing.done()
            assert all(max(found, default=0) < first for found in seen.values())
            go_on.set()
            assert (await appending).entries[0].seq == first
            assert (await writing).seq == first + 1

            async def all_seen() -> bool:
                await poll()
                return all(found[-1:] == [first + 1] for found in seen.values())

            await eventually(all_seen)
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)
        assert seen == {way: list(range(1, first + 2)) for way in seen}
        await late.aclose()


async def test_a_cursor_that_is_read_while_another_call_moves_it_stays_moved(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.note("FACT", "x")
    read = api.service.store.cursor
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(board: str, agent: str) -> int:
        found = await read(board, agent)
        if not reading.is_set():
            reading.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(api.service.store, "cursor", slowly)
    await api.auth("w2")
    first = asyncio.create_task(api.get("/pending/w2", "w2"))
    await reading.wait()
    assert (await api.get("/pending/w2", "w2", ack=1)).json()["notices"] == []
    go_on.set()
    assert (await first).json()["notices"] == []
    assert (await api.get("/pending/w2", "w2")).json()["notices"] == []


async def test_older_history_that_comes_too_late_for_its_place_is_left_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a block is read, so much is written that the one it was to stand before has to go."""
    for module in ("history", "service"):
        monkeypatch.setattr(f"board_service.{module}.BLOCK", 16)
    monkeypatch.setattr("board_service.service.History", lambda floor, _cap: History(floor, 3000))
    await asyncio.to_thread(prepare, database)
    async with opened(database) as engine:
        store = Store(engine)
        await store.ensure_board("main", NOW)
        await store.append("main", [note(f"number {number:03}") for number in range(1, 101)], NOW, 3600.0)
        read = store.folded
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(board: str, after: int, until: int) -> str:
            text = await read(board, after, until)
            if not reading.is_set():
                reading.set()
                await go_on.wait()
            return text

        monkeypatch.setattr(store, "folded", slowly)
        settings = BoardSettings(ring_entries=64, follow_seconds=3600.0)
        service = BoardService(settings, store, TokenBook(engine, ""), SystemClock())
        await service.start()
        board = await service.board("main")
        assert board.loading is not None
        await reading.wait()
        for number in range(101, 401):
            await service.write("main", note(f"number {number:03}"))
        go_on.set()
        await board.loading
        for number in range(1, 401):
            found = await service.grep("main", grep_terms(f"number {number:03}"), None, 10)
            assert [entry.seq for entry in found] == [number]
        await service.aclose()


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_token_that_is_committed_late_does_not_hide_a_revocation(database: str) -> None:
    await asyncio.to_thread(prepare, database)
    async with opened(database) as engine, opened(database) as slow:
        book, other, late = TokenBook(engine, ""), TokenBook(engine, ""), TokenBook(slow, "")
        revoked = await other.create("old", Role.WORKER, "main", NOW)
        about_to_commit, go_on = asyncio.Event(), asyncio.Event()

        def wait(_connection: object) -> None:
            about_to_commit.set()
            await_only(go_on.wait())

        event.listen(slow.sync_engine, "commit", wait)
        making = asyncio.create_task(late.create("late", Role.WORKER, "main", NOW))
        await about_to_commit.wait()
        await other.create("new", Role.WORKER, "main", NOW)
        await book.refresh()
        assert await book.find(revoked) is not None
        await book.refresh()
        await other.revoke("old", None)
        go_on.set()
        made = await making
        await book.refresh()
        assert await book.find(revoked) is None
        assert await book.find(made) is not None


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_revocation_whose_answer_was_lost_is_told(database: str) -> None:
    await asyncio.to_thread(prepare, database)
    async with proxied(database) as (proxy, engine):
        book = TokenBook(engine, "")
        await book.create("w1", Role.WORKER, "main", NOW)
        proxy.drop_answer_to = b"COMMIT"
        revoking = asyncio.create_task(book.revoke("w1", None))
        async with asyncio.timeout(30):
            while not proxy.dropped:  # noqa: ASYNC110 - the proxy counts
                await asyncio.sleep(0)
        proxy.refuse = False
        assert await revoking == 1
        assert await book.revoke("w1", None) == 0


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_first_cursors_of_many_agents_that_another_process_writes_too(
    database: str, mariadb_server: MariaDb
) -> None:
    await asyncio.to_thread(prepare, database)
    name = make_url(database).database
    async with opened(database) as engine:
        store = Store(engine)
        agents = ["w1", "w2", "w3"]
        taken: list[str] = []

        def taken_meanwhile(_connection: object, _cursor: object, statement: str, values: object, *_: object) -> None:
            if statement.startswith("INSERT INTO board_cursors"):
                agent = next(each for each in agents if each in repr(values))
                if agent not in taken:
                    taken.append(agent)
                    insert = f"INSERT INTO board_cursors (board, agent, cursor_seq) VALUES ('main', '{agent}', 3)"
                    mariadb_server.run(insert, database=name)

        event.listen(engine.sync_engine, "before_cursor_execute", taken_meanwhile)
        await store.save_cursors({("main", "w1"): 5, ("main", "w2"): 2, ("main", "w3"): 7})
        assert taken == agents
        assert [await store.cursor("main", agent) for agent in agents] == [5, 3, 7]


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_commit_whose_answer_is_lost_is_the_same_entry(database: str) -> None:
    """The thorough way and the one round trip: nothing twice, nothing skipped, and claims are released once."""
    await asyncio.to_thread(prepare, database)
    async with proxied(database) as (proxy, engine):
        store = Store(engine)
        await store.ensure_board("main", NOW)

        async def lost(notes: list[Note], after: Head | None) -> list[int]:
            dropped = proxy.dropped
            proxy.drop_answer_to = b"COMMIT"
            appending = asyncio.create_task(store.append("main", notes, NOW, 3600.0, after=after))
            async with asyncio.timeout(30):
                while proxy.dropped == dropped:  # noqa: ASYNC110 - the proxy counts
                    await asyncio.sleep(0)
            proxy.refuse = False
            return [entry.seq for entry in (await appending).entries]

        claim = Note("w1", EntryType.CLAIM, "sort", "", "k:claim")
        done = Note("w1", EntryType.PATCH_SUMMARY, "files=a | idea=closes G2 | evidence=ran it", "", "k:done")
        assert await lost([note("one")], Head()) == [1]
        assert await lost([claim, note("two")], Head(1)) == [2, 3]
        assert await lost([done], Head(3)) == [4]
        assert await store.head("main") == Head(4, releases=1)
        async with engine.connect() as connection:
            rows = (await connection.execute(text("SELECT seq FROM board_entries ORDER BY seq"))).scalars()
            assert list(rows) == [1, 2, 3, 4]
        await store.aclose()
