"""Database engines: SQLite (WAL) and MySQL/MariaDB, async, with bounded pools.

A URL is SQLAlchemy's: `sqlite+aiosqlite:////path/board.sqlite3` or `mysql+aiomysql://user:password@host/name`. Each
owner of tables (the board, the router) keeps its own Alembic history and version table, so both may share a database.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from agensh import outage
from agensh.errors import AgenshError, UsageError

T = TypeVar("T")

POOL_SIZE = 8
BUSY_TIMEOUT = 20.0  # seconds a SQLite writer waits for its turn
RETRIES = 6
MIGRATION_WAIT = 60  # seconds for another process to finish its migration
IDLE = 1.0  # seconds after which a connection may have been cut without anybody having noticed
_MIGRATING = threading.Lock()  # Alembic keeps the running migration in module globals
_MYSQL_RETRYABLE = {1020, 1205, 1213, 2006, 2013, 2055, 1040, 1053, 1927, 2003, 4031}
"""Changed since the snapshot (MariaDB 11.6 on, REPEATABLE READ), lock wait, deadlock, gone away, lost connection (2),
too many connections, shutting down, connection killed, nobody there (it restarts), idle disconnect."""

_NO_ROOM_MYSQL = {1021, 1041, 1114, 3675}
"""Disk full, out of memory, table full, tablespace full."""


class DatabaseUnavailable(AgenshError):
    """The database did not take the operation; nothing was written. Try again in a moment."""


OUTAGE = (DatabaseUnavailable, OperationalError, InterfaceError, InternalError, PoolTimeout)
"""What a database that is away, full or overloaded raises; all else is the fault of a statement."""


def open_engine(url: str, *, pool_size: int = POOL_SIZE, isolation: str = "READ COMMITTED") -> AsyncEngine:
    """Return an engine for `url`; UsageError for a database that is not supported.

    SQLite connections run in WAL mode with `synchronous=FULL` (a commit survives a power cut) and begin every
    transaction as a writer where asked by `begin_write`. MySQL connections are utf8mb4 and run at `isolation`, because
    it locks least; everything is correct at MySQL's own default, REPEATABLE READ, as well.
    """
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        engine = create_async_engine(url, pool_size=pool_size, max_overflow=0, connect_args={"timeout": BUSY_TIMEOUT})
        event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine
    if backend in {"mysql", "mariadb"}:
        query = dict(parsed.query) | {"charset": "utf8mb4"}
        engine = create_async_engine(
            _with_sent_password(parsed).set(query=query),
            pool_size=pool_size,
            max_overflow=0,
            pool_recycle=1800,
            # By the driver while it connects, which closes what fails half-way; a listener that fails leaves it open.
            connect_args={"init_command": f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"},
            # Every transaction is ended where it was begun; a rollback more is a round trip more.
            pool_reset_on_return=None,
        )
        _ping_idle(engine)
        _close_for_sure(engine)
        return engine
    raise UsageError(f"database: {backend!r} is not supported; use sqlite+aiosqlite or mysql+aiomysql.")


def _with_sent_password(url: URL) -> URL:
    """Return a MySQL URL whose password leaves the driver as UTF-8, in which other clients set and send it.

    The drivers write a password as Latin-1, whatever the connection's character set, and fail on all other letters.
    """
    return url if url.password is None else url.set(password=url.password.encode().decode("latin-1"))


def _close_for_sure(engine: AsyncEngine) -> None:
    """Close a connection's socket also when the driver cannot send its goodbye, after which it would stay open."""
    dialect: Any = engine.sync_engine.dialect
    say_goodbye = dialect.do_close

    def do_close(connection: Any) -> None:
        try:
            say_goodbye(connection)
        finally:
            connection.driver_connection.close()

    dialect.do_close = do_close


def _ping_idle(engine: AsyncEngine) -> None:
    """Ask a connection that was idle whether it still lives, before it is used.

    One that was used a moment ago is taken as it is: asking each time is a round trip for each transaction, and a
    server that goes away is found out about either way.
    """

    @event.listens_for(engine.sync_engine, "checkin")
    def _note(_connection: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def _check(connection: Any, record: Any, _proxy: Any) -> None:
        used_at = record.info.get("used_at")
        if used_at is None or time.monotonic() - used_at < IDLE:
            return
        try:
            connection.ping(reconnect=False)
        except Exception as error:
            raise InvalidatePoolError from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_sqlite, not by the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("agensh_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@asynccontextmanager
async def begin_write(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that will write: on SQLite it takes the write lock at once, so it cannot fail half-way."""
    async with engine.connect() as connection:
        await connection.execution_options(agensh_write=True)
        async with connection.begin():
            yield connection


def is_retryable(error: DBAPIError) -> bool:
    """Say whether the same transaction may succeed when it is run again from its start."""
    if error.connection_invalidated:
        return True
    original = error.orig
    code = original.args[0] if original is not None and original.args else None
    return code in _MYSQL_RETRYABLE or "is locked" in str(original)


def no_room(error: BaseException | None) -> bool:
    """Say whether the storage under a database took no more: disk full, quota used up."""
    while error is not None:
        original = error.orig if isinstance(error, DBAPIError) else error
        if original is not None and outage.no_room(original):
            return True
        if isinstance(error, DBAPIError):
            return original is not None and bool(original.args) and original.args[0] in _NO_ROOM_MYSQL
        error = error.__cause__
    return False


async def retrying(
    operation: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> T:
    """Run a whole transaction, again after a deadlock, a lock time-out or a lost connection (bounded).

    `operation` must be safe to repeat from its start: its own commit may have happened when the connection was lost,
    so every write carries a unique key.
    """
    for attempt in range(RETRIES):
        try:
            return await operation()
        except DBAPIError as error:
            if not is_retryable(error):
                raise
            if attempt == RETRIES - 1:
                raise DatabaseUnavailable from error
        await sleep(0.02 * 2**attempt)
    raise DatabaseUnavailable


def migrate(url: str, scripts: Path, *, version_table: str, revision: str = "head") -> None:
    """Bring the tables of one owner to `revision` (blocking; call it before the event loop or in a thread).

    `scripts` is the owner's Alembic folder; a revision below the current one migrates down. AgenshError when another
    process does not get done with the same database.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.attributes["url"] = url
    config.attributes["version_table"] = version_table
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    with _MIGRATING:
        if revision == "head" or revision.startswith("+"):
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)


def run_migrations(config: Config, target_metadata: Any) -> None:
    """Body of an owner's `env.py`: run its migrations over a synchronous connection to the same database."""
    from alembic import context
    from sqlalchemy import create_engine, pool

    url = make_url(config.attributes["url"])
    if url.get_backend_name() != "sqlite":
        url = _with_sent_password(url)
    sync = {"sqlite+aiosqlite": "sqlite", "mysql+aiomysql": "mysql+pymysql"}
    engine = create_engine(url.set(drivername=sync.get(url.drivername, url.drivername)), poolclass=pool.NullPool)
    with engine.connect() as connection:
        if url.get_backend_name() != "sqlite":
            # Several processes of a run may start at once; the lock ends with the connection.
            # By a hash: a database's name may have 64 characters, and that is all that MySQL takes for a lock's.
            lock = f"SELECT GET_LOCK(CONCAT('agensh.', SHA2(DATABASE(), 224)), {MIGRATION_WAIT})"
            if connection.exec_driver_sql(lock).scalar() != 1:
                raise AgenshError(
                    f"db: another process has been changing the tables of {url.database} for {MIGRATION_WAIT} s;"
                    " end it, or start again when it has ended."
                )
            connection.commit()
        context.configure(
            connection=connection,
            target_metadata=target_metadata,
            version_table=config.attributes["version_table"],
            render_as_batch=url.get_backend_name() == "sqlite",
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
