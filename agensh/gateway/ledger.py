"""The gateway's database: keys, and every request with what it cost.

`settle` returns once its row is committed, and with it everything that was given before; rows of many requests go into
one transaction. While the database is away it waits, at most `PATIENCE`; then DatabaseUnavailable tells the caller, and
the row is kept and written as soon as the database takes it. `begin` and `note` wait for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, case, func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from agensh.clock import Clock
from agensh.db import DatabaseUnavailable, begin_write, open_engine, retrying
from agensh.db_setup import prepare
from agensh.gateway.tables import MIGRATIONS, MODEL_CAP, VERSION_TABLE, keys, requests
from agensh.gateway.usage import Tokens
from agensh.identity import new_token, token_hash

PATIENCE = 20.0  # seconds a request waits for its row
RETRY_WAIT = 1.0  # seconds between tries while the database is away
BATCH = 500  # rows a transaction
KEY_PREFIX = "aggw"
_AWAY = (SQLAlchemyError, DatabaseUnavailable, OSError)  # also the pool's word for having no connection in time
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """A request as it begins."""

    id: str
    worker: str
    wire: str
    model: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Settled:
    """How a request ended."""

    state: str
    """`metered`, `unmetered`, `failed` or `refused`; `open` for what is known of one that goes on."""
    ended_at: float | None
    status: int
    reason: str = ""
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """What one worker has used so far."""

    requests: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    spent_usd: float = 0.0


@dataclass(slots=True)
class _Row:
    begun: Begun
    settled: Settled | None
    done: asyncio.Future[None]

    def settle(self) -> None:
        """Tell who waits for it."""
        if not self.done.done():
            self.done.set_result(None)


class Ledger:
    """Keys and requests in one database; `run` is its task, `close` writes what is left and ends it."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._engine = open_engine(url, pool_size=4)
        self._rows: list[_Row] = []
        self._work = asyncio.Event()
        self._closing = False
        self._away = False

    async def prepare(self) -> None:
        """Bring the tables up to date; AgenshError when the database cannot be used."""
        await asyncio.to_thread(prepare, self._url, MIGRATIONS, version_table=VERSION_TABLE)

    async def open(self) -> None:
        """Bring the tables up to date; what a killed gateway left open becomes `unmetered`. One gateway a database."""
        await self.prepare()
        change = (
            update(requests)
            .where(requests.c.state == "open")
            .values(state="unmetered", reason="the gateway was killed", ended_at=self._clock.time())
        )

        async def once() -> int:
            async with begin_write(self._engine) as connection:
                return (await connection.execute(change)).rowcount

        if lost := await retrying(once, sleep=self._clock.sleep):
            log.warning("requests of a killed gateway are unmetered", extra={"requests": lost})

    def begin(self, begun: Begun) -> None:
        """Let it be written that a request begins, soon and before how it ends; wait for nothing."""
        self._rows.append(_Row(begun, None, asyncio.get_running_loop().create_future()))
        self._work.set()

    async def settle(self, begun: Begun, settled: Settled) -> None:
        """Commit how a request ended; one that was never begun is written whole."""
        await self._write(_Row(begun, settled, asyncio.get_running_loop().create_future()))

    def note(self, begun: Begun, settled: Settled) -> asyncio.Future[None]:
        """Let it be written how a request ended, or how far it is, soon, and wait for nothing.

        What is returned is done once it is written.
        """
        row = _Row(begun, settled, asyncio.get_running_loop().create_future())
        self._rows.append(row)
        self._work.set()
        return row.done

    async def _write(self, row: _Row) -> None:
        if self._closing:
            raise DatabaseUnavailable("The gateway is stopping.")
        self._rows.append(row)
        self._work.set()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(row.done)
        except TimeoutError:
            raise DatabaseUnavailable("The gateway's database does not take writes.") from None

    @property
    def away(self) -> bool:
        """The database did not take the last transaction."""
        return self._away

    async def run(self) -> None:
        """Write until `close`."""
        while True:
            await self._work.wait()
            if not self._rows:
                if self._closing:
                    return
                self._work.clear()
                continue
            batch, self._rows = self._rows[:BATCH], self._rows[BATCH:]
            try:
                await retrying(lambda batch=batch: self._commit(batch), sleep=self._clock.sleep)  # type: ignore[misc]
            except (DataError, IntegrityError) as error:
                # One row is at fault; it must not hold up the others.
                await self._write_each(batch, error)
                continue
            except Exception as error:  # whatever it is: without this task nothing would be recorded any more
                self._away = True
                self._rows = batch + self._rows
                unknown = None if isinstance(error, _AWAY) else error
                log.error(
                    "usage waits for the database",
                    extra={"rows": len(self._rows), "error": str(error)[:500]},
                    exc_info=unknown,
                )
                if self._closing:
                    return
                await self._clock.sleep(RETRY_WAIT)
                continue
            self._away = False
            for row in batch:
                row.settle()

    async def _write_each(self, batch: list[_Row], error: Exception) -> None:
        if len(batch) == 1:
            log.error("a request cannot be recorded", extra={"request": batch[0].begun.id, "error": str(error)[:500]})
            batch[0].settle()
            return
        for row in batch:
            try:
                await retrying(lambda row=row: self._commit([row]), sleep=self._clock.sleep)  # type: ignore[misc]
            except (DataError, IntegrityError) as wrong:
                await self._write_each([row], wrong)
            except _AWAY:
                self._rows.append(row)
            else:
                row.settle()

    def close(self) -> None:
        """Let `run` end once everything is written."""
        self._closing = True
        self._work.set()

    async def dispose(self) -> None:
        """Close the connections."""
        await self._engine.dispose()

    async def _commit(self, batch: list[_Row]) -> None:
        new = [_begun(row.begun) for row in batch if row.settled is None]
        ended = [(row.begun, row.settled) for row in batch if row.settled is not None]
        async with begin_write(self._engine) as connection:
            if new:
                await connection.execute(_INSERT, new)
            if ended:
                known = set(
                    (
                        await connection.execute(
                            select(requests.c.id).where(requests.c.id.in_([begun.id for begun, _ in ended]))
                        )
                    ).scalars()
                )
                changed = [_settled(begun, end) for begun, end in ended if begun.id in known]
                whole = [_begun(begun) | _ending(end) for begun, end in ended if begun.id not in known]
                if changed:
                    await connection.execute(_SETTLE, changed)
                if whole:
                    await connection.execute(_INSERT, whole)

    # Keys

    async def keys(self) -> dict[str, str]:
        """Return the worker of every valid key, by the key's hash."""
        query = select(keys.c.hash, keys.c.worker).where(keys.c.revoked_at.is_(None))
        async with self._engine.connect() as connection:
            return {row.hash: row.worker for row in await connection.execute(query)}

    async def new_key(self, worker: str) -> str:
        """Make a key for a worker; every former one of it is revoked. The key is not shown again."""
        key, now = new_token(KEY_PREFIX), self._clock.time()

        async def once() -> None:
            async with begin_write(self._engine) as connection:
                await connection.execute(_revocation(worker, now))
                await connection.execute(insert(keys).values(hash=token_hash(key), worker=worker, created_at=now))

        try:
            await retrying(once, sleep=self._clock.sleep)
        except IntegrityError:
            # Committed by a try whose connection was lost.
            log.info("key was there already", extra={"worker": worker})
        return key

    async def revoke(self, worker: str) -> bool:
        """Revoke the keys of a worker; say whether it had any."""
        now = self._clock.time()
        found = 0

        async def once() -> None:
            nonlocal found
            async with begin_write(self._engine) as connection:
                # Committed by a try whose connection was lost, there are none left for the next one.
                found = max(found, (await connection.execute(_revocation(worker, now))).rowcount)

        await retrying(once, sleep=self._clock.sleep)
        return found > 0

    # Reading

    async def totals(self) -> dict[str, Total]:
        """Return what each worker has used."""
        counted = case((requests.c.state == "refused", 0), else_=1)
        query = select(
            requests.c.worker,
            func.sum(counted).label("requests"),
            *(func.sum(requests.c[f"{name}_tokens"]).label(name) for name in Tokens.__slots__),
            func.sum(requests.c.cost_usd).label("spent"),
        ).group_by(requests.c.worker)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return {
            row.worker: Total(
                int(row.requests),
                Tokens(**{name: int(getattr(row, name)) for name in Tokens.__slots__}),
                float(row.spent or 0.0),
            )
            for row in rows
        }


async def read_requests(url: str) -> AsyncIterator[Mapping[str, Any]]:
    """Read every request of a gateway's database in the order of their beginnings, few at a time in memory."""
    engine = open_engine(url, pool_size=1)
    try:
        async with engine.connect() as connection:
            found = await connection.stream(select(requests).order_by(requests.c.started_at, requests.c.id))
            async for row in found.mappings():
                yield dict(row)
    finally:
        await engine.dispose()


def _revocation(worker: str, now: float) -> Any:
    return update(keys).where(keys.c.worker == worker, keys.c.revoked_at.is_(None)).values(revoked_at=now)


def _begun(begun: Begun) -> dict[str, Any]:
    return {
        "id": begun.id,
        "worker": begun.worker,
        "wire": begun.wire,
        "model": begun.model[:MODEL_CAP],
        "started_at": begun.started_at,
        "ended_at": None,
        "state": "open",
        "reason": "",
        "status": 0,
        "cost_usd": None,
        **{f"{name}_tokens": 0 for name in Tokens.__slots__},
    }


def _ending(end: Settled) -> dict[str, Any]:
    return {
        "ended_at": end.ended_at,
        "state": end.state,
        "reason": end.reason[:190],
        "status": end.status,
        "cost_usd": end.cost_usd,
        **{f"{name}_tokens": getattr(end.tokens, name) for name in Tokens.__slots__},
    }


def _settled(begun: Begun, end: Settled) -> dict[str, Any]:
    return {"the_id": begun.id} | {f"new_{name}": value for name, value in _ending(end).items()}


# A commit whose connection was lost may have happened: what is there already stays.
_INSERT = (
    insert(requests)
    .prefix_with("OR IGNORE", dialect="sqlite")
    .prefix_with("IGNORE", dialect="mysql")
    .prefix_with("IGNORE", dialect="mariadb")
)
_SETTLE = (
    update(requests)
    .where(requests.c.id == bindparam("the_id"))
    .values({name: bindparam(f"new_{name}") for name in _ending(Settled("", 0.0, 0))})
)
