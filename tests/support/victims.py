"""What is killed with SIGKILL at every statement: the board, the gateway's ledger, the posts of the task channel.

`python -m tests.support.victims NAME FOLDER STEP [URL]` prints one JSON line a kill (see `tests/support/victim.py`);
URL is that of an empty MySQL database.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from sqlalchemy import insert, select

from agensh.clients.mattermost import Post
from agensh.clock import SystemClock
from agensh.db import migrate, open_engine
from agensh.gateway import tables as gateway_tables
from agensh.gateway.ledger import Begun, Ledger, Settled
from agensh.gateway.usage import Tokens
from board_service.auth import Role, TokenBook
from board_service.board import check_note
from board_service.database import prepare
from board_service.service import BoardService
from board_service.settings import BoardSettings
from board_service.store import Store
from router import tables as router_tables
from router.cursors import write_cursors
from router.posts import CURSOR, PostFeed
from router.queue import EventQueue, RetryPolicy
from router.writer import Writer
from tests.support.victim import Log, Work, kill_at_each, kill_before

ME, PEER = "demo-worker1", "demo-worker2"
NOTES = [
    ("CLAIM", "sort"),
    ("FACT", "tabs break it"),
    ("PATCH_SUMMARY", "files=a | idea=closes G1 | evidence=ran it"),
    ("CLAIM", "uniq"),
]
CLAIMED = 4
"""The entry that its worker releases by itself; the first one is released by the patch that names it."""
POSTS = [f"number {number}" for number in range(1, 7)]
END = Settled("metered", 3.0, 200, "", Tokens(10, 4, 1, 5, 2), 0.25)
ASKED = 3


async def board(url: str, log: Log, killed_at: int) -> None:
    """Write with keys, release, acknowledge, make and revoke tokens."""
    engine = open_engine(url)
    book = TokenBook(engine, "")
    service = BoardService(BoardSettings(follow_seconds=60.0), Store(engine), book, SystemClock())
    await service.start()
    kill_before(engine, killed_at)
    old = await book.create("old", Role.WORKER, "main", 0.0)
    log.write("made", old)
    for number, (kind, content) in enumerate(NOTES, start=1):
        done = await service.write("main", check_note({"type": kind, "content": content}, ME, f"k:{number}"))
        log.write("wrote", f"{number}={done.entry.seq}")
    await service.release("main", CLAIMED, ME)
    log.write("released", str(CLAIMED))
    await service.pending("main", PEER, CLAIMED)
    log.write("acknowledged", str(CLAIMED))
    await book.revoke("old", None)
    log.write("revoked", old)
    log.write("made", await book.create("new", Role.WORKER, "main", 0.0))
    await service.aclose()
    await engine.dispose()


async def ledger(url: str, log: Log, killed_at: int) -> None:
    """Make keys, revoke one, and serve requests; a client asks anew for what it got no answer to."""
    books = Ledger(url, SystemClock())
    kill_before(books._engine, killed_at)
    await books.open()
    writing = asyncio.create_task(books.run())
    key = await books.new_key(ME)
    log.write("key", key)
    log.write("key", await books.new_key(PEER))
    await books.revoke(PEER)
    log.write("revoked", PEER)
    for number in range(ASKED):
        begun = Begun(uuid4().hex, ME, "chat", "m", float(number))
        books.begin(begun)
        await asyncio.sleep(0)
        await books.settle(begun, END)
        log.write("answered", begun.id)
    books.close()
    await writing
    await books.dispose()


async def posts(url: str, log: Log, killed_at: int) -> None:
    """Take the channel's posts two at a time; tell them, and save how far the worker was told."""
    engine, clock = open_engine(url), SystemClock()
    writer = Writer(engine, clock)
    task = asyncio.create_task(writer.run())
    feed = PostFeed(writer, clock, "c1")
    queue = EventQueue(ME, writer, clock, RetryPolicy(), posts=feed)
    box = queue.posts
    assert box is not None
    kill_before(engine, killed_at)
    await feed.load()
    box.restore(await queue.cursor(CURSOR))
    await queue.recover()
    for start in range(0, len(POSTS), 2):
        taken = [
            Post(f"p{number}", "c1", "u2", POSTS[number], "", 1000 * number, "", "")
            for number in range(max(0, start - 1), start + 2)
        ]
        await feed.take(taken, {"u2": PEER})
        log.write("took", str(start + 2))
        while (claim := await queue.claim("s")) is not None:
            for item in claim.events:
                log.write("saw", str(-item.id))
            ids = [item.id for item in claim.events]
            await queue.ack(ids)
            saved = box.unsaved()
            assert saved is not None
            await writer.submit(lambda connection, saved=saved: write_cursors(connection, {(ME, CURSOR): saved}))  # type: ignore[misc]
            for event_id in ids:
                log.write("saved", str(-event_id))
    writer.close()
    await task
    await engine.dispose()


def gateway_database(url: str) -> None:
    migrate(url, gateway_tables.MIGRATIONS, version_table=gateway_tables.VERSION_TABLE)


def runtime_database(url: str) -> None:
    migrate(url, router_tables.MIGRATIONS, version_table=router_tables.VERSION_TABLE)

    async def begin() -> None:
        engine = open_engine(url)
        async with engine.begin() as connection:
            assert (await connection.execute(select(router_tables.runs))).first() is None
            await connection.execute(insert(router_tables.runs).values(run_id="r", t0=0.0, state="running"))
        await engine.dispose()

    asyncio.run(begin())


VICTIMS: dict[str, tuple[Callable[[str], None], Work]] = {
    "board": (prepare, board),
    "ledger": (gateway_database, ledger),
    "posts": (runtime_database, posts),
}


if __name__ == "__main__":
    empty, work = VICTIMS[sys.argv[1]]
    kill_at_each(Path(sys.argv[2]), empty, work, step=int(sys.argv[3]), template=(sys.argv[4:] or [""])[0])
