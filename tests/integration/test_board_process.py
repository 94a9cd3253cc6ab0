"""`agensh board serve` as a process: killed in the middle of writes, stopped with open streams, started alone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import httpx
import pytest

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError, UsageError
from agensh.serving import open_socket
from board_service.server import serve
from board_service.settings import BoardSettings
from tests.support.board_process import make_token, served
from tests.support.mariadb import mariadb_server

__all__ = ["mariadb_server"]


@pytest.fixture(params=["sqlite", "mariadb"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The options that name an empty database."""
    if request.param == "sqlite":
        return ["--data", str(tmp_path / "new" / "folder")]
    return ["--db", str(request.getfixturevalue("mariadb_server").new_database())]


async def test_killed_during_writes_every_acknowledged_entry_is_there_once(where: list[str]) -> None:
    writers, each = 8, 200
    token = make_token("w1", *where)
    acknowledged: dict[str, int] = {}

    async def write(url: str, names: list[str]) -> None:
        async with BoardClient(url, token, "main") as client:
            for name in names:
                if name not in acknowledged:
                    acknowledged[name] = (await client.write("FACT", name, key=name)).seq

    names = [[f"{writer}-{index}" for index in range(each)] for writer in range(writers)]
    with served(*where, "--port", "0") as first:
        tasks = [asyncio.create_task(write(first.url, mine)) for mine in names]
        async with asyncio.timeout(60):
            while len(acknowledged) < 100:  # noqa: ASYNC110 (what is waited for is progress, not an event)
                await asyncio.sleep(0.001)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    known = dict(acknowledged)
    assert 100 <= len(known) < writers * each
    with served(*where, "--port", "0") as second:
        async with BoardClient(second.url, token, "main") as client:
            entries = await client.read()
            stored = {entry.content: entry.seq for entry in entries}
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert len(stored) == len(entries)
            assert {name: stored.get(name) for name in known} == known

            # The same keys again: what was written answers with its first entry, the rest is written now.
            async def write_again(name: str) -> None:
                again = await client.write("FACT", name, key=name)
                assert again.repeated == (name in stored)
                assert again.seq == stored.setdefault(name, again.seq)

            for index in range(len(known) // writers + 10):
                await asyncio.gather(*(write_again(mine[index]) for mine in names))
            assert await client.head() == len(stored)
        assert second.end(signal.SIGTERM) == 0


async def test_it_stops_at_once_with_streams_open(tmp_path: Path) -> None:
    folder = ["--data", str(tmp_path)]
    token = make_token("w1", *folder)
    with served(*folder, "--port", "0") as running:
        async with BoardClient(running.url, token, "main") as client:
            await client.write("FACT", "x")
            streams = [client.stream(1) for _ in range(5)]
            waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
            live = client.stream(0)
            assert (await anext(live)).seq == 1
            started = time.monotonic()
            status = await asyncio.to_thread(running.end, signal.SIGTERM)
            assert (status, time.monotonic() - started < 5) == (0, True)
            for task in waiting:
                with pytest.raises(ServiceError):
                    await task
            with contextlib.suppress(ServiceError):
                await anext(live)
        assert "Traceback" not in "".join(running.lines)


def test_a_fresh_folder_then_curl(tmp_path: Path) -> None:
    """The walk a newcomer takes: serve, make tokens while it runs, write, be refused, hear of it once."""
    folder = ["--data", str(tmp_path / "board data")]
    with served(*folder, "--port", "0") as running:
        assert f"agensh board token NAME --data '{tmp_path / 'board data'}'" in "".join(running.lines)
        one, two = make_token("w1", *folder), make_token("w2", *folder)
        with httpx.Client(base_url=running.url, trust_env=False) as http:
            mine, other = ({"Authorization": f"Bearer {token}"} for token in (one, two))
            note = {"thread_id": "w1", "type": "FAIL", "content": "tabs break wc"}
            assert http.post("/board/main/note", json=note).status_code == 401
            assert http.get("/pending/w2").status_code == 401
            assert http.post("/board/main/note", json=note, headers=mine).json()["label"] == "G1"
            bad = {"type": "PATCH_SUMMARY", "content": "files=a | idea=b | evidence=tbd"}
            rejected = http.post("/board/main/note", json=bad, headers=mine)
            assert (rejected.status_code, rejected.json()["status"]) == (422, "rejected")
            assert "'tbd' is a placeholder" in rejected.json()["reason"]
            pending = http.get("/pending/w2", headers=other).json()
            assert [line["id"] for line in pending["notices"]] == ["g1"]
            assert http.get(f"/pending/w2?ack={pending['cursor']}", headers=other).json()["notices"] == []
            assert http.get("/pending/w2", headers=other).json()["notices"] == []
        assert running.end(signal.SIGINT) == 0
    database = tmp_path / "board data" / "board.sqlite3"
    assert one.encode() not in database.read_bytes()
    with served(*folder, "--port", "0") as again:
        assert "nobody has a token" not in "".join(again.lines)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with open_socket("127.0.0.1", 0, "board") as taken:
        port = taken.getsockname()[1]
        taken.listen()
        with pytest.raises(UsageError, match=rf"^port: {port} on 127\.0\.0\.1 is already in use"):
            serve(BoardSettings(data=str(tmp_path), port=port))
    with pytest.raises(UsageError, match="choose another host or port"):
        open_socket("192.0.2.1", 0, "board")  # an address of nobody
