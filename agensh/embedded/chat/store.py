"""SQLite under the chat.

One writer thread commits in groups: everything that waits when it is free becomes one transaction (a savepoint each),
so a thousand senders share an fsync. `write` returns after the commit (WAL, `synchronous=FULL`): what was answered
survives `kill -9`. Reads run on a connection of their own in another thread and see every commit that came before them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from agensh.clock import Clock, SystemClock
from agensh.embedded.chat.model import (
    Channel,
    ChannelMember,
    Post,
    Preference,
    Reaction,
    Team,
    TeamMember,
    Token,
    User,
)
from agensh.errors import UsageError
from agensh.outage import Outage, no_room

log = logging.getLogger(__name__)

T = TypeVar("T")
Row = User | Token | Team | TeamMember | Channel | ChannelMember | Post | Reaction | Preference
R = TypeVar("R", bound=Row)

VERSION = 1
"""Of the tables."""
BATCH = 256
"""Most operations in one transaction."""
BUSY_TIMEOUT = 20.0
"""Seconds to wait for a lock of another process."""

_TABLES: dict[type, tuple[str, tuple[str, ...]]] = {
    User: ("users", ("id",)),
    Token: ("tokens", ("hash",)),
    Team: ("teams", ("id",)),
    TeamMember: ("team_members", ("team_id", "user_id")),
    Channel: ("channels", ("id",)),
    ChannelMember: ("channel_members", ("channel_id", "user_id")),
    Post: ("posts", ("id",)),
    Reaction: ("reactions", ("post_id", "user_id", "emoji_name")),
    Preference: ("preferences", ("user_id", "category", "name")),
}
_NOT_STORED = {"reply_count", "pending_post_id"}
_INDEXES = """
CREATE UNIQUE INDEX IF NOT EXISTS users_username ON users (username);
CREATE UNIQUE INDEX IF NOT EXISTS users_email ON users (email);
CREATE UNIQUE INDEX IF NOT EXISTS tokens_id ON tokens (id);
CREATE UNIQUE INDEX IF NOT EXISTS teams_name ON teams (name);
CREATE UNIQUE INDEX IF NOT EXISTS channels_name ON channels (team_id, name);
CREATE INDEX IF NOT EXISTS posts_created ON posts (channel_id, delete_at, create_at);
CREATE INDEX IF NOT EXISTS posts_updated ON posts (channel_id, update_at);
CREATE INDEX IF NOT EXISTS posts_root ON posts (root_id, delete_at) WHERE root_id != '';
CREATE INDEX IF NOT EXISTS posts_original ON posts (original_id) WHERE original_id != '';
"""


def _columns(kind: type) -> list[dataclasses.Field[Any]]:
    return [column for column in dataclasses.fields(kind) if column.name not in _NOT_STORED]


def _schema() -> str:
    kinds = {"str": "TEXT NOT NULL", "int": "INTEGER NOT NULL", "bool": "INTEGER NOT NULL"}
    statements = []
    for kind, (table, key) in _TABLES.items():
        columns = [f"{column.name} {kinds.get(str(column.type), 'TEXT NOT NULL')}" for column in _columns(kind)]
        statements.append(
            f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)}, PRIMARY KEY ({', '.join(key)})) WITHOUT ROWID;"
        )
    return "\n".join(statements) + _INDEXES


def _encode(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def put(connection: sqlite3.Connection, row: Row) -> None:
    """Insert a row; `sqlite3.IntegrityError` when its key is taken."""
    names = [column.name for column in _columns(type(row))]
    marks = ", ".join("?" * len(names))
    connection.execute(
        f"INSERT INTO {_TABLES[type(row)][0]} ({', '.join(names)}) VALUES ({marks})",
        [_encode(getattr(row, name)) for name in names],
    )


def replace(connection: sqlite3.Connection, row: Row) -> None:
    """Write a row over the one with its key, if there is one."""
    table, key = _TABLES[type(row)]
    names = [column.name for column in _columns(type(row))]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    conflict = f"UPDATE SET {changes}" if changes else "NOTHING"
    connection.execute(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO {conflict}",
        [_encode(getattr(row, name)) for name in names],
    )


def change(connection: sqlite3.Connection, row: Row, **values: Any) -> None:
    """Set single columns of the row with this key, and leave the others to concurrent writers."""
    table, key = _TABLES[type(row)]
    changes = ", ".join(f"{name} = ?" for name in values)
    where = " AND ".join(f"{name} = ?" for name in key)
    connection.execute(
        f"UPDATE {table} SET {changes} WHERE {where}",
        [_encode(value) for value in values.values()] + [getattr(row, name) for name in key],
    )


def remove(connection: sqlite3.Connection, row: Row) -> None:
    """Delete the row with this key."""
    table, key = _TABLES[type(row)]
    where = " AND ".join(f"{name} = ?" for name in key)
    connection.execute(f"DELETE FROM {table} WHERE {where}", [getattr(row, name) for name in key])


def select(connection: sqlite3.Connection, kind: type[R], rest: str = "", values: Sequence[Any] = ()) -> list[R]:
    """Return rows; `rest` is everything after the table's name."""
    columns = _columns(kind)
    names = ", ".join(column.name for column in columns)
    found = connection.execute(f"SELECT {names} FROM {_TABLES[kind][0]} {rest}", values)
    return [
        kind(**{column.name: _decode(column, value) for column, value in zip(columns, row, strict=True)})
        for row in found
    ]


def _decode(column: dataclasses.Field[Any], value: Any) -> Any:
    if column.type == "bool":
        return bool(value)
    if str(column.type).startswith("dict"):
        return json.loads(value)
    return value


def check_version(path: Path) -> None:
    """UsageError when the file was written by a version of Agensh with other tables."""
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT)) as connection:
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise UsageError(f"data: {path} is not a database of the chat ({error}); choose another folder.") from error
    if version not in {0, VERSION}:
        raise UsageError(
            f"data: {path} has version {version} of the chat's tables, this Agensh reads {VERSION}; "
            "choose another folder."
        )


class Store:
    """The database file: open on construction, closed by `close`."""

    def __init__(self, path: Path, clock: Clock = SystemClock()) -> None:
        self._outage = Outage(log, clock, "the database takes writes again")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._path = path
        self._writer = self._connect()
        self._writer.executescript(f"{_schema()}\nPRAGMA user_version = {VERSION};")
        self._reader = self._connect()
        self._reader.execute("PRAGMA query_only=ON")
        self._queue: queue.SimpleQueue[tuple[Callable[[sqlite3.Connection], Any], Future[Any]] | None]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="chat-writer", daemon=True)
        self._thread.start()
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chat-reader")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run `operation` in a transaction and return its result once it is on disk.

        An exception of the operation undoes that operation alone and is raised here. A cancelled caller does not undo
        it: the operation may still be committed.
        """
        done: Future[T] = Future()
        self._queue.put((operation, done))
        return await asyncio.shield(asyncio.wrap_future(done))

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run `operation` on the reading connection."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, operation, self._reader)

    def load(self, kind: type[R]) -> list[R]:
        """Return every row of a table (blocking; for the start)."""
        return select(self._writer, kind)

    def close(self) -> None:
        """Commit what waits and close the file (blocking)."""
        self._queue.put(None)
        self._thread.join()
        self._readers.shutdown()
        self._reader.close()
        self._writer.close()

    def _run(self) -> None:
        running = True
        while running:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH:
                    batch.append(self._queue.get_nowait())
            running = None not in batch
            jobs = [job for job in batch if job is not None]
            if jobs:
                self._commit(jobs)

    def _commit(self, jobs: list[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]]) -> None:
        connection = self._writer
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for operation, done in jobs:
                connection.execute("SAVEPOINT job")
                try:
                    result = operation(connection)
                except Exception as error:
                    if not connection.in_transaction:  # the disk is full, say: SQLite has undone all of it
                        raise
                    connection.execute("ROLLBACK TO job")
                    results.append((done, None, error))
                else:
                    results.append((done, result, None))
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._outage.failed("the disk is full" if no_room(error) else "the database takes no writes", error)
            results = [(done, None, error) for _, done in jobs]
        else:
            self._outage.worked()
        for done, result, failure in results:
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(failure)
