"""The board's SQL. Every method is one transaction, run again from its start after a deadlock or a lost connection.

Order: a transaction that appends holds the board's row from before it reads the head until its commit, so seqs are
gapless and become visible in order, whatever process writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Executable, and_, case, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agensh.db import begin_write, retrying
from agensh.entries import NOTICE_ORDER, Entry, EntryType
from agensh.errors import AgenshError
from board_service.appender import Appender
from board_service.board import Note, folded, named_labels
from board_service.history import SEPARATOR
from board_service.tables import boards, cursors, entries

JOINED_CAP = 8_000_000  # bytes; 4096 entries have at most 6.2 million
_LISTED = (
    entries.c.seq,
    entries.c.worker,
    entries.c.type,
    entries.c.content,
    entries.c.created_at,
    entries.c.expires_at,
    entries.c.has_detail,
    entries.c.released_at,
)
_RANK = case({str(type_): rank for rank, type_ in enumerate(NOTICE_ORDER)}, value=entries.c.type)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a board stands."""

    seq: int = 0
    releases: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """What one transaction did: an entry a note, in their order, and the board's state after it."""

    entries: tuple[Entry, ...]
    repeated: tuple[bool, ...]
    head: Head


class _Batch:
    """Notes on their way to becoming entries: numbered from a head on, the known ones left out."""

    def __init__(
        self, board: str, head: Head, known: dict[tuple[str, str], Entry], now: float, claim_seconds: float
    ) -> None:
        self._board = board
        self._known = known
        self._now = now
        self._claim_seconds = claim_seconds
        self._results: list[Entry] = []
        self._repeated: list[bool] = []
        self.seq = head.seq
        self.rows: list[dict[str, object]] = []
        self.named: list[tuple[str, set[int]]] = []
        """Workers and the labels that their patch summaries name."""

    def add(self, notes: Sequence[Note]) -> None:
        """Number the notes in their order."""
        for note in notes:
            entry = self._known.get((note.worker, note.key))
            self._repeated.append(entry is not None)
            if entry is None:
                self.seq += 1
                entry = _new_entry(self.seq, note, self._now, self._claim_seconds)
                self._known[note.worker, note.key] = entry
                self.rows.append(_row(self._board, entry, note))
                if note.type is EntryType.PATCH_SUMMARY and (labels := named_labels(note.content)):
                    self.named.append((note.worker, labels))
            self._results.append(entry)

    def done(self, releases: int) -> Appended:
        """Return what was written, once it is."""
        return Appended(tuple(self._results), tuple(self._repeated), Head(self.seq, releases))


def _entry(row: Any) -> Entry:
    return Entry(
        seq=row.seq,
        worker=row.worker,
        type=EntryType(row.type),
        content=row.content,
        created_at=row.created_at / 1000,
        expires_at=None if row.expires_at is None else row.expires_at / 1000,
        has_detail=bool(row.has_detail),
        active=row.released_at is None,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _shown(now: float) -> ColumnElement[bool]:
    return or_(
        entries.c.type != str(EntryType.CLAIM),
        and_(entries.c.released_at.is_(None), entries.c.expires_at > _ms(now)),
    )


class Store:
    """Entries, heads and cursors in the database. `active` of what it returns means: not released."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._appender = None if engine.dialect.name == "sqlite" else Appender(engine)

    async def aclose(self) -> None:
        """Give back what is kept."""
        if self._appender is not None:
            await self._appender.aclose()

    async def check(self) -> None:
        """Make sure that the database keeps every character; AgenshError when a MySQL is not utf8mb4 all through."""
        if self.engine.dialect.name == "sqlite":
            return
        async with self.engine.connect() as connection:
            session = await connection.execute(
                text(
                    "SHOW SESSION VARIABLES WHERE Variable_name IN "
                    "('character_set_client','character_set_connection','character_set_results')"
                )
            )
            wrong = [f"{row[0]}={row[1]}" for row in session if row[1] != "utf8mb4"]
            columns = await connection.execute(
                text(
                    "SELECT table_name, column_name, character_set_name FROM information_schema.columns WHERE "
                    "table_schema = DATABASE() AND table_name IN ('board_boards','board_entries','board_cursors',"
                    "'board_tokens') AND character_set_name IS NOT NULL AND character_set_name <> 'utf8mb4'"
                )
            )
            wrong += [f"{row[0]}.{row[1]}={row[2]}" for row in columns]
        if wrong:
            raise AgenshError(f"database: its character set must be utf8mb4 all through, but {', '.join(wrong)}.")

    async def ping(self) -> None:
        """Ask the database for an answer."""
        async with self.engine.connect() as connection:
            await connection.execute(text("SELECT 1"))

    async def heads(self) -> dict[str, Head]:
        """Return where every board stands."""
        query = select(boards.c.name, boards.c.head_seq, boards.c.releases)
        return {row.name: Head(row.head_seq, row.releases) for row in await self._rows(query)}

    async def head(self, board: str) -> Head:
        """Return where a board stands; zero for one nobody has written to."""
        rows = await self._rows(_head_query(board))
        return Head(rows[0].head_seq, rows[0].releases) if rows else Head()

    async def ensure_board(self, board: str, now: float) -> None:
        """Create the board's row unless it is there."""

        async def create() -> None:
            async with begin_write(self.engine) as connection:
                if (await connection.execute(select(boards.c.name).where(boards.c.name == board))).first() is None:
                    values = {"name": board, "head_seq": 0, "releases": 0, "created_at": _ms(now)}
                    await connection.execute(insert(boards).values(values))

        with contextlib.suppress(IntegrityError):  # another process created it at the same moment
            await retrying(create)

    async def append(
        self, board: str, notes: Sequence[Note], now: float, claim_seconds: float, *, after: Head | None = None
    ) -> Appended:
        """Write notes in their order; a note whose key is known answers with its first entry.

        A PATCH_SUMMARY releases its worker's claims that it names, in the same transaction. With `after`, where the
        board is thought to stand, it is tried first whether that is still so and no note is known: it takes half the
        round trips.
        """
        if after is not None and self._appender is not None:
            batch = _Batch(board, after, {}, now, claim_seconds)
            batch.add(notes)
            if not batch.named and await self._appender.append(board, after.seq, batch.rows):
                return batch.done(after.releases)
        return await retrying(lambda: self._append(board, notes, now, claim_seconds))

    async def _append(self, board: str, notes: Sequence[Note], now: float, claim_seconds: float) -> Appended:
        async with begin_write(self.engine) as connection:
            head = await _head(connection, board)
            batch = _Batch(board, head, await _known(connection, board, notes), now, claim_seconds)
            batch.add(notes)
            releases = head.releases
            if batch.rows:
                await connection.execute(insert(entries), batch.rows)
                for worker, labels in batch.named:
                    releases += await _release(connection, board, labels, worker, now)
                await connection.execute(
                    update(boards).where(boards.c.name == board).values(head_seq=batch.seq, releases=releases)
                )
        return batch.done(releases)

    async def release(self, board: str, seq: int, worker: str, now: float) -> None:
        """Release a claim of `worker`; nothing happens when it is released already."""

        async def mark() -> None:
            async with begin_write(self.engine) as connection:
                head = await _head(connection, board)
                if await _release(connection, board, {seq}, worker, now):
                    await connection.execute(
                        update(boards).where(boards.c.name == board).values(releases=head.releases + 1)
                    )

        await retrying(mark)

    async def after(
        self, board: str, seq: int, limit: int, *, type_: EntryType | None = None, shown_at: float | None = None
    ) -> list[Entry]:
        """Return the first `limit` entries after `seq`, ascending; with `shown_at` only what the listing shows then."""
        where = [entries.c.board == board, entries.c.seq > seq, *_narrowed(type_, shown_at)]
        return await self._list(select(*_LISTED).where(*where).order_by(entries.c.seq).limit(limit))

    async def newest(
        self, board: str, limit: int, *, type_: EntryType | None = None, shown_at: float | None = None
    ) -> list[Entry]:
        """Return the newest `limit` entries, ascending."""
        where = [entries.c.board == board, *_narrowed(type_, shown_at)]
        found = await self._list(select(*_LISTED).where(*where).order_by(entries.c.seq.desc()).limit(limit))
        return found[::-1]

    async def claims(self, board: str, now: float) -> list[Entry]:
        """Return the active claims, ascending."""
        query = select(*_LISTED).where(
            entries.c.board == board,
            entries.c.type == str(EntryType.CLAIM),
            entries.c.released_at.is_(None),
            entries.c.expires_at > _ms(now),
        )
        return await self._list(query.order_by(entries.c.seq))

    async def grep(self, board: str, terms: Sequence[Sequence[str]], before: int | None, limit: int) -> list[Entry]:
        """Return entries that contain every term of at least one group, newest first; terms are in folded case."""
        groups = [and_(*(func.instr(entries.c.folded, term) > 0 for term in group)) for group in terms]
        query = select(*_LISTED).where(entries.c.board == board, or_(*groups))
        if before is not None:
            query = query.where(entries.c.seq < before)
        return await self._list(query.order_by(entries.c.seq.desc()).limit(limit))

    async def listed(self, board: str, seqs: Collection[int]) -> list[Entry]:
        """Return these entries, in no particular order."""
        return await self._list(select(*_LISTED).where(entries.c.board == board, entries.c.seq.in_(seqs)))

    async def folded(self, board: str, after: int, until: int) -> str:
        """Return what grep looks through of the entries after `after` up to `until`, joined by `SEPARATOR`."""
        where = and_(entries.c.board == board, entries.c.seq > after, entries.c.seq <= until)
        if self.engine.dialect.name == "sqlite":
            rows = await self._rows(select(entries.c.folded).where(where).order_by(entries.c.seq))
            return SEPARATOR.join([row[0] for row in rows])
        # Joined by the database: the driver takes a hundred times as long for as many rows.
        query = select(text(f"GROUP_CONCAT(folded ORDER BY seq SEPARATOR {ord(SEPARATOR):#04x})"))

        async def read() -> str:
            async with self.engine.connect() as connection:
                await connection.execute(text(f"SET SESSION group_concat_max_len = {JOINED_CAP}"))
                return str(await connection.scalar(query.select_from(entries).where(where)) or "")

        return await retrying(read)

    async def unfold(self, board: str, seq: int) -> tuple[Entry, str] | None:
        """Return an entry and its detail, None when there is no such entry."""
        query = select(*_LISTED, entries.c.detail).where(entries.c.board == board, entries.c.seq == seq)
        rows = await self._rows(query)
        return (_entry(rows[0]), rows[0].detail) if rows else None

    async def unseen(
        self, board: str, agent: str, after: int, head: int, now: float, limit: int
    ) -> tuple[list[Entry], dict[EntryType, int]]:
        """Return the `limit` most pressing of what others wrote after `after` up to `head`, and counts by type."""
        where = and_(
            entries.c.board == board,
            entries.c.seq > after,
            entries.c.seq <= head,
            entries.c.worker != agent,
            _shown(now),
        )
        picked = select(*_LISTED).where(where).order_by(_RANK, entries.c.seq.desc()).limit(limit)
        counted = select(entries.c.type, func.count()).where(where).group_by(entries.c.type)
        counts = {EntryType(row[0]): int(row[1]) for row in await self._rows(counted)}
        return await self._list(picked), counts

    async def cursor(self, board: str, agent: str) -> int:
        """Return up to where `agent` has acknowledged the board."""
        query = select(cursors.c.cursor_seq).where(cursors.c.board == board, cursors.c.agent == agent)
        rows = await self._rows(query)
        return int(rows[0].cursor_seq) if rows else 0

    async def save_cursors(self, moved: Mapping[tuple[str, str], int]) -> None:
        """Move cursors of (board, agent) forward, never back."""
        for _ in moved:  # another process wrote an agent's first cursor at the same moment: now the next is tried
            with contextlib.suppress(IntegrityError):
                await retrying(lambda: self._save_cursors(moved))
                return
        await retrying(lambda: self._save_cursors(moved))

    async def _save_cursors(self, moved: Mapping[tuple[str, str], int]) -> None:
        async with begin_write(self.engine) as connection:
            for (board, agent), seq in sorted(moved.items()):  # one order, so that two processes cannot deadlock
                mine = and_(cursors.c.board == board, cursors.c.agent == agent)
                known = (await connection.execute(select(cursors.c.cursor_seq).where(mine).with_for_update())).scalar()
                if known is None:
                    await connection.execute(insert(cursors).values(board=board, agent=agent, cursor_seq=seq))
                elif known < seq:
                    await connection.execute(update(cursors).where(mine).values(cursor_seq=seq))

    async def _list(self, query: Executable) -> list[Entry]:
        return [_entry(row) for row in await self._rows(query)]

    async def _rows(self, query: Executable) -> Sequence[Any]:
        async def read() -> Sequence[Any]:
            async with self.engine.connect() as connection:
                return (await connection.execute(query)).all()

        return await retrying(read)


def _narrowed(type_: EntryType | None, shown_at: float | None) -> list[ColumnElement[bool]]:
    conditions = [] if type_ is None else [entries.c.type == str(type_)]
    return conditions if shown_at is None else [*conditions, _shown(shown_at)]


def _head_query(board: str, *, lock: bool = False) -> Executable:
    query = select(boards.c.head_seq, boards.c.releases).where(boards.c.name == board)
    return query.with_for_update() if lock else query


async def _head(connection: AsyncConnection, board: str) -> Head:
    """Lock the board's row until the transaction ends (on SQLite the transaction itself is the lock) and read it."""
    row = (await connection.execute(_head_query(board, lock=True))).first()
    return Head() if row is None else Head(row.head_seq, row.releases)


async def _known(connection: AsyncConnection, board: str, notes: Sequence[Note]) -> dict[tuple[str, str], Entry]:
    keys = {note.key for note in notes}
    query = select(*_LISTED, entries.c.note_key).where(
        entries.c.board == board,
        entries.c.worker.in_({note.worker for note in notes}),
        entries.c.note_key.in_(keys),
    )
    return {(row.worker, row.note_key): _entry(row) for row in await connection.execute(query)}


async def _release(connection: AsyncConnection, board: str, seqs: Collection[int], worker: str, now: float) -> int:
    released = await connection.execute(
        update(entries)
        .where(
            entries.c.board == board,
            entries.c.seq.in_(seqs),
            entries.c.worker == worker,
            entries.c.type == str(EntryType.CLAIM),
            entries.c.released_at.is_(None),
        )
        .values(released_at=_ms(now))
    )
    return int(released.rowcount)


def _new_entry(seq: int, note: Note, now: float, claim_seconds: float) -> Entry:
    return Entry(
        seq=seq,
        worker=note.worker,
        type=note.type,
        content=note.content,
        created_at=_ms(now) / 1000,
        expires_at=_ms(now + claim_seconds) / 1000 if note.type is EntryType.CLAIM else None,
        has_detail=bool(note.detail),
    )


def _row(board: str, entry: Entry, note: Note) -> dict[str, object]:
    return {
        "board": board,
        "seq": entry.seq,
        "worker": entry.worker,
        "type": str(entry.type),
        "content": entry.content,
        "folded": folded(entry.content, entry.worker),
        "detail": note.detail,
        "has_detail": entry.has_detail,
        "created_at": _ms(entry.created_at),
        "expires_at": None if entry.expires_at is None else _ms(entry.expires_at),
        "released_at": None,
        "note_key": note.key,
    }
