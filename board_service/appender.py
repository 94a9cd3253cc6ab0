"""Appending on MySQL with one round trip: one kept connection, straight through the driver.

It is told where the board stood when it was last looked at. The first statement moves the head from there, which takes
the board row's lock like any other append and fails when another process wrote meanwhile. Whatever goes wrong,
the batch is rolled back and `append` says so; the caller then does it the thorough way, which looks everything up, also
what a commit that was cut off may have written already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymysql.err import MySQLError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from board_service.tables import boards, entries

log = logging.getLogger(__name__)

STALL_SECONDS = 60.0  # for one batch; a lock is waited for 50 s by default
STATEMENT_CAP = 1_000_000  # characters; MariaDB takes packets of 16 MiB
_BIGGEST = 2**63 - 1  # of a BIGINT; one more is an error
_OUT_OF_DATE = frozenset({1062, 1690})
"""Duplicate key (a note's key that is known), out of range (the head is elsewhere)."""
_COLUMNS = tuple(column.name for column in entries.columns)
_INSERT = f"INSERT INTO {entries.name} ({', '.join(_COLUMNS)}) VALUES "


class Appender:
    """One connection for the batches of all boards of this process, opened at its first use."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None
        self._driver: Any = None
        self._lock = asyncio.Lock()

    async def append(self, board: str, head: int, rows: Sequence[Mapping[str, object]]) -> bool:
        """Commit `rows`, which follow `head`; False when that did not work, for whatever reason.

        After False the rows may have been committed nevertheless (a connection lost during the commit).
        """
        if self._lock.locked():  # another board's batch: it must not hold this one up
            return False
        async with self._lock:
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    return await self._append(board, head, rows)
            except (MySQLError, SQLAlchemyError, OSError, RuntimeError) as error:  # a timeout is an OSError
                log.debug("the kept connection failed", extra={"board": board, "error": str(error)})
                await self._drop()
                return False
            except BaseException:  # cut off in the middle of an exchange: the connection is of no use any more
                await self._drop()
                raise

    async def aclose(self) -> None:
        """Give the connection back."""
        async with self._lock:
            if self._connection is not None:
                await self._connection.close()
                self._connection = self._driver = None

    async def _append(self, board: str, head: int, rows: Sequence[Mapping[str, object]]) -> bool:
        if self._connection is None:
            self._connection = await self._engine.connect()
            self._driver = (await self._connection.get_raw_connection()).driver_connection
        driver = self._driver
        name = _literal(driver, board)
        # Statements of our own making, numbers and texts quoted by the driver, so that several may go in one message;
        # the first that fails ends it, before the COMMIT. Where the head is not the expected one, the UPDATE must fail.
        moved = f"IF(head_seq = {head}, {head + len(rows)}, head_seq + 1 + {_BIGGEST})"
        first, *more = _pieces(driver, rows)
        message = f"UPDATE {boards.name} SET head_seq = {moved} WHERE name = {name}; {_INSERT}{first}"
        try:
            await driver.query(message if more else f"{message}; COMMIT")
            claimed: bool = driver.affected_rows() == 1
            await driver.next_result()
            for values in more:
                await driver.query(_INSERT + values)
            await (driver.commit() if more else driver.next_result())
        except MySQLError as error:
            if error.args[0] not in _OUT_OF_DATE:
                raise
            await driver.rollback()
            return False
        return claimed

    async def _drop(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, MySQLError, OSError, RuntimeError):
                await connection.invalidate()
                await connection.close()


def _pieces(driver: Any, rows: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """Yield the rows as SQL, in pieces that a server takes."""
    piece: list[str] = []
    size = 0
    for row in rows:
        values = f"({', '.join([_literal(driver, row[column]) for column in _COLUMNS])})"
        if piece and size + len(values) > STATEMENT_CAP:
            yield ", ".join(piece)
            piece, size = [], 0
        piece.append(values)
        size += len(values)
    yield ", ".join(piece)


def _literal(driver: Any, value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"'{driver.escape_string(value)}'"
    assert isinstance(value, int)  # booleans among them
    return str(int(value))
