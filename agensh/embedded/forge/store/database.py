"""One SQLite file with a single writer thread and a few reader threads.

A write is a function of a transaction. Writes run one after the other on the writer thread, so a check followed by an
insert cannot race; those that wait together share one commit (and its fsync), each inside its own savepoint. The caller
hears of a write only after that commit: what it was told survives `kill -9` and a power cut. A reader sees everything
that was committed before it began.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

from agensh.clock import Clock, SystemClock
from agensh.embedded.forge.store.schema import SCHEMA, VERSION
from agensh.errors import AgenshError
from agensh.outage import Outage, no_room

log = logging.getLogger(__name__)

T = TypeVar("T")
Row = sqlite3.Row

READERS = 4
BATCH = 64  # writes that may share one commit
WAITING = 4096  # writes that may wait; more wait outside


class Tx:
    """A transaction: short forms of the few statements the forge uses."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.touched: set[int] = set()
        """Users whose notifications changed; told to the event stream after the commit."""

    def one(self, sql: str, *values: object) -> Row | None:
        """Return the first row, or None."""
        return cast(Row | None, self._connection.execute(sql, values).fetchone())

    def all(self, sql: str, *values: object) -> list[Row]:
        """Return all rows."""
        return self._connection.execute(sql, values).fetchall()

    def value(self, sql: str, *values: object) -> Any:
        """Return the first column of the first row, or None."""
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def run(self, sql: str, *values: object) -> int:
        """Change rows; return how many."""
        return self._connection.execute(sql, values).rowcount

    def insert(self, table: str, **columns: object) -> int:
        """Insert one row and return its id; table and column names are ours, never a client's."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
        return cast(int, cursor.lastrowid)

    def update(self, table: str, key: str, value: object, **columns: object) -> int:
        """Set columns of the rows where `key` is `value`; return how many."""
        names = ", ".join(f"{name} = ?" for name in columns)
        return self._connection.execute(
            f"UPDATE {table} SET {names} WHERE {key} = ?", (*columns.values(), value)
        ).rowcount


def marks(values: Iterable[object]) -> str:
    """Return the placeholders of an IN list."""
    return ", ".join("?" for _ in values)


class Database:
    """Open with `open()`, close with `close()`; use `read` and `write` from the event loop."""

    def __init__(
        self, path: Path, *, on_touched: Callable[[set[int]], None] | None = None, clock: Clock | None = None
    ) -> None:
        self._path = path
        self._outage = Outage(log, clock or SystemClock(), "the database takes writes again")
        self._on_touched = on_touched
        self._jobs: queue.Queue[tuple[Callable[[Tx], Any], Future[Any]] | None] = queue.Queue(WAITING)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._writer: threading.Thread | None = None
        self._room = asyncio.Semaphore(WAITING)

    def full(self, error: Exception) -> None:
        """Say that somebody else met a full disk, the data folder's: once, with what the database itself meets."""
        with self._telling:
            self._outage.failed("the disk is full", error)

    def open(self) -> None:
        """Create or migrate the file and start the threads (blocking)."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        writer = self._connect()
        try:
            found = writer.execute("PRAGMA user_version").fetchone()[0]
            if found > VERSION:
                raise AgenshError(
                    f"{self._path}: the data is of version {found}, newer than this Agensh knows ({VERSION}); "
                    "use the newer Agensh, or another data folder."
                )
            if found < VERSION:
                writer.executescript(f"BEGIN IMMEDIATE; {SCHEMA}; PRAGMA user_version = {VERSION}; COMMIT;")
        except BaseException:
            writer.close()
            raise
        self._writer = threading.Thread(target=self._write_loop, args=(writer,), name="forge-writer", daemon=True)
        self._writer.start()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="forge-reader")

    def close(self) -> None:
        """Finish the writes that wait, then close the file (blocking)."""
        if self._writer is not None:
            self._jobs.put(None)
            self._writer.join()
            self._writer = None
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on a consistent snapshot; it must not write."""
        if self._pool is None:
            raise AgenshError("The forge's database is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    def peek(self, work: Callable[[Tx], T]) -> T:
        """Run a look-up by key at once, on the event loop's own connection.

        It takes microseconds, and a reader in WAL mode never waits for the writer; handing it to a thread and back
        costs a hundred times that on a busy machine. Lists and whatever reads files belong into `read`.
        """
        if self._pool is None:
            raise AgenshError("The forge's database is closed.")
        return self._read(work)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run `work` as a transaction and return after its commit; an exception from it undoes all it wrote.

        A caller that is cancelled leaves the write to happen or not, as a lost connection would.
        """
        if self._writer is None:
            raise AgenshError("The forge's database is closed.")
        async with self._room:
            done: Future[T] = Future()
            self._jobs.put_nowait((work, done))
            return await asyncio.wrap_future(done)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=20.0, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _read(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        connection.execute("BEGIN")
        try:
            return work(Tx(connection))
        finally:
            connection.execute("COMMIT")

    def _write_loop(self, connection: sqlite3.Connection) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                batch = [job]
                ending = False
                while len(batch) < BATCH:
                    try:
                        more = self._jobs.get_nowait()
                    except queue.Empty:
                        break
                    if more is None:
                        ending = True
                        break
                    batch.append(more)
                self._commit(connection, batch)
                if ending:
                    return
        finally:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[tuple[Callable[[Tx], Any], Future[Any]]]) -> None:
        outcomes: list[tuple[Future[Any], Any, BaseException | None]] = []
        touched: set[int] = set()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for work, done in batch:
                if not done.set_running_or_notify_cancel():
                    continue
                transaction = Tx(connection)
                connection.execute("SAVEPOINT work")
                try:
                    result = work(transaction)
                except BaseException as error:
                    if not connection.in_transaction:  # the disk is full, say: SQLite has undone all of it
                        raise
                    connection.execute("ROLLBACK TO work")
                    outcomes.append((done, None, error))
                else:
                    touched |= transaction.touched
                    outcomes.append((done, result, None))
                connection.execute("RELEASE work")
            connection.execute("COMMIT")
        except sqlite3.Error as error:  # none of the batch was written
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._telling:
                self._outage.failed("the disk is full" if no_room(error) else "the database takes no writes", error)
            for _, done in batch:
                # A caller may be cancelled at any moment; without this the writer would end with it.
                if done.running() or (not done.done() and done.set_running_or_notify_cancel()):
                    done.set_exception(error)
            return
        with self._telling:
            self._outage.worked()
        for done, result, failure in outcomes:
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(failure)
        if touched and self._on_touched is not None:
            self._on_touched(touched)
