"""The stream: nothing skipped, nothing twice, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket

import pytest

from agensh.clients.board import BoardClient, Released, StreamOpened
from agensh.entries import Entry, EntryType
from agensh.errors import ServiceError
from board_service.board import Note
from tests.contract.board.conftest import Api, Serve, eventually


async def collect(api: Api, after: int, count: int, **headers: str) -> list[int]:
    """Return the ids of the next `count` events, as a plain SSE reader sees them."""
    found: list[int] = []
    url = f"/board/main/stream?after={after}"
    async with api.http.stream("GET", url, headers=await api.auth("w1") | headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                found.append(int(line[4:]))
            if len(found) == count:
                break
    return found


async def test_catch_up_from_memory_and_from_the_database_then_live(serve: Serve) -> None:
    for ring in (100, 2):
        async with serve(ring_entries=ring) as api:
            head = (await api.get("/board/main")).json()["head"]
            for index in range(6):
                await api.note("FACT", f"n{index}")
            assert await collect(api, head, 6) == list(range(head + 1, head + 7))
            assert await collect(api, head + 4, 2) == [head + 5, head + 6]
            last = str(head + 5)
            assert await collect(api, 0, 1, **{"Last-Event-ID": last}) == [head + 6]  # it goes before `after`
            async with asyncio.timeout(30):
                live = asyncio.create_task(collect(api, head + 6, 1))
                await subscribed(api, 1)
                await api.note("FACT", "live")
                assert await live == [head + 7]
            await subscribed(api, 0)


async def subscribed(api: Api, count: int) -> None:
    async def reached() -> bool:
        return sum(board.feed.subscribers for board in api.service.boards()) == count

    await eventually(reached)


async def test_bad_last_event_ids_are_refused(api: Api) -> None:
    for value in ("x", "-1", "1" * 40, "²"):
        headers = {**await api.auth("w1"), "Last-Event-ID": value.encode("latin-1")}
        answer = await api.http.get("/board/main/stream", headers=headers)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "last_event_id")


async def test_a_quiet_stream_has_heartbeats(serve: Serve) -> None:
    async with serve(heartbeat_seconds=0.05) as api, asyncio.timeout(20):
        reading = api.http.stream("GET", "/board/main/stream", headers=await api.auth("w1"))
        beats = 0
        async with reading as answer:
            async for line in answer.aiter_lines():
                beats += line == ": heartbeat"
                if beats == 3:
                    break


async def test_a_stream_cut_again_and_again_under_write_load_has_no_gap(serve: Serve) -> None:
    notes = 300
    async with serve(ring_entries=64) as api, asyncio.timeout(90):
        await api.auth("w1")

        async def write() -> None:
            for index in range(0, notes, 10):
                await asyncio.gather(*(api.note("FACT", f"n{index + part}") for part in range(10)))

        writing = asyncio.create_task(write())
        seen: list[int] = []
        cuts = 0
        reader = BoardClient(api.url, (await api.auth("w1"))["Authorization"][7:], "main")
        async with reader:
            for length in itertools.cycle((1, 7, 23, 60)):
                stream = reader.stream(seen[-1] if seen else 0)
                seen += [(await anext(stream)).seq for _ in range(min(length, notes - len(seen)))]
                await stream.aclose()
                cuts += 1
                if len(seen) == notes:
                    break
        await writing
        assert seen == list(range(1, notes + 1))
        assert cuts > 8


async def test_a_reader_that_takes_no_bytes_is_cut_and_resumes(serve: Serve) -> None:
    async with serve(send_seconds=0.3, send_buffer=8192) as api, asyncio.timeout(60):
        text = "files=a | idea=" + "i" * 250 + " | evidence=ok 1"
        notes = [Note("w1", EntryType.PATCH_SUMMARY, text, "", f"i:{index}") for index in range(1000)]
        await asyncio.gather(*(api.service.write("main", note) for note in notes))
        reading = await connect(api, "/board/main/stream", receive_buffer=4096)
        try:

            async def cut() -> bool:
                return bool(api.service.metrics.streams_cut == 1)

            await eventually(cut)
        finally:
            reading.close()
        # Whoever reads as fast as this machine lets it is not cut.
        api.service.settings = api.service.settings.model_copy(update={"send_seconds": 30.0})
        assert await collect(api, 500, 500) == list(range(501, 1001))


async def test_a_live_reader_far_behind_is_cut_and_resumes(serve: Serve) -> None:
    async with serve(stream_lag=5) as api, asyncio.timeout(60):
        await api.note("FACT", "first")
        async with BoardClient(api.url, (await api.auth("w1"))["Authorization"][7:], "main") as client:
            waiting = asyncio.ensure_future(anext(client.stream(1)))
            await subscribed(api, 1)
            notes = [Note("w1", EntryType.FACT, f"n{index}", "", f"i:{index}") for index in range(10)]
            await asyncio.gather(*(api.service.write("main", note) for note in notes))  # one batch: ten behind at once
            with pytest.raises(ServiceError, match="cut") as error:
                await waiting
            assert error.value.retryable
            assert api.service.metrics.streams_cut == 1
        assert await collect(api, 1, 10) == list(range(2, 12))


async def connect(api: Api, path: str, *, receive_buffer: int) -> socket.socket:
    """Return a connection that has asked for `path` and reads nothing."""
    host, port = api.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, int(port)))
    token = (await api.auth("w1"))["Authorization"]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n\r\n"
    await loop.sock_sendall(connection, request.encode())
    return connection


async def test_stopping_the_service_ends_streams_at_once(serve: Serve) -> None:
    async with asyncio.timeout(30):
        async with serve() as api:
            token = (await api.auth("w1"))["Authorization"][7:]
            async with BoardClient(api.url, token, "main") as client:
                stream = client.stream(0)
                waiting = asyncio.ensure_future(anext(stream))
                await subscribed(api, 1)
                api.service.stop_streams()
                with pytest.raises(ServiceError, match="cut"):
                    await waiting


async def happenings(api: Api, after: int, count: int) -> list[tuple[str, str, int, bool]]:
    """Return the next `count` events as a plain reader sees them: their id, type, seq and whether it is active."""
    found: list[tuple[str, str, int, bool]] = []
    fields: dict[str, str] = {}
    url = f"/board/main/stream?after={after}"
    async with api.http.stream("GET", url, headers=await api.auth("w1")) as answer:
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line:
                if "data" in fields:
                    data = json.loads(fields["data"])
                    found.append((fields.get("id", ""), fields["event"], data["seq"], data["active"]))
                fields = {}
            if len(found) == count:
                break
    return found


async def test_a_release_is_told_to_whoever_has_the_claim(serve: Serve) -> None:
    async with serve() as api, asyncio.timeout(60):
        await api.note("CLAIM", "implement wc")
        await api.note("CLAIM", "implement sort")
        reading = asyncio.create_task(happenings(api, 0, 5))
        late = asyncio.create_task(happenings(api, 2, 3))
        await subscribed(api, 2)
        token = (await api.auth("w1"))["Authorization"][7:]
        async with BoardClient(api.url, token, "main") as client:
            await client.release("G1")
            await client.write("PATCH_SUMMARY", "files=a | idea=b of G2 | evidence=pytest: 3 passed")
        seen, rest = await reading, await late
        assert seen[:2] == [("1", "entry", 1, True), ("2", "entry", 2, True)]
        # Without an id: whoever resumes goes on after the last entry.
        assert sorted(seen[2:]) == sorted(rest) == [
            ("", "release", 1, False), ("", "release", 2, False), ("3", "entry", 3, True),
        ]  # fmt: skip
        assert await happenings(api, 0, 3) == [
            ("1", "entry", 1, False),
            ("2", "entry", 2, False),
            ("3", "entry", 3, True),
        ]


async def test_a_release_by_another_service_is_told_as_well(serve: Serve) -> None:
    async with serve(follow_seconds=0.05) as one, serve(follow_seconds=0.05) as two, asyncio.timeout(60):
        await one.note("CLAIM", "implement wc")
        reading = asyncio.create_task(happenings(two, 0, 2))
        await subscribed(two, 1)
        async with BoardClient(one.url, (await one.auth("w1"))["Authorization"][7:], "main") as client:
            await client.release("G1")
        assert await reading == [("1", "entry", 1, True), ("", "release", 1, False)]


async def test_a_client_follows_entries_and_releases_and_its_stream_has_entries_only(serve: Serve) -> None:
    async with serve() as api, asyncio.timeout(60):
        await api.note("CLAIM", "implement wc")
        token = (await api.auth("w1"))["Authorization"][7:]
        async with BoardClient(api.url, token, "main") as client:
            following, entries = client.follow(0), client.stream(0)
            assert await anext(following) == StreamOpened()
            claim = await anext(following)
            assert isinstance(claim, Entry)
            assert claim == await anext(entries)
            await subscribed(api, 2)
            await client.release("G1")
            await client.write("FACT", "done")
            assert await anext(following) == Released(1)
            assert [(await anext(each)).seq for each in (following, entries)] == [2, 2]  # type: ignore[union-attr]
            await following.aclose()
            await entries.aclose()
