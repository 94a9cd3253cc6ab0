"""The board service without HTTP: boards opened in memory, their writers, and following other processes' writes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from agensh.clock import Clock
from agensh.db import OUTAGE, DatabaseUnavailable, no_room
from agensh.entries import Entry, EntryType
from agensh.outage import Outage
from agensh.ratelimit import Rate, RateLimiter
from board_service.auth import TokenBook
from board_service.board import Note, is_shown
from board_service.errors import refuse, storage_unavailable
from board_service.history import BLOCK, History
from board_service.metrics import Metrics
from board_service.notices import Notice, notices, pick
from board_service.overlap import Overlap, overlaps
from board_service.settings import BoardSettings
from board_service.store import Head, Store
from board_service.stream import Feed
from board_service.writer import GroupWriter

REACH = 2000  # newest entries that pending looks at, at least
log = logging.getLogger(__name__)

Written = TypeVar("Written")

CATCH_UP = 1000  # entries read from the database at a time
LOAD_WAIT = 1.0  # seconds between two tries to read the history while the database is away


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of a note."""

    entry: Entry
    repeated: bool
    overlaps: tuple[Overlap, ...]


@dataclass(frozen=True, slots=True)
class WorkerTold:
    """What a node host told of a worker."""

    worker: str
    state: str
    reason: str
    told_at: int
    """Milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent has not acknowledged; acknowledging `cursor` covers all of it."""

    notices: tuple[Notice, ...]
    cursor: int


def shown_entry(entry: Entry, now: float) -> dict[str, Any]:
    """Return an entry as the interface shows it at `now`."""
    return replace(entry, active=is_shown(entry, now)).to_json()


class OpenBoard:
    """One board in memory."""

    def __init__(self, name: str, feed: Feed, history: History, claims: list[Entry], releases: int) -> None:
        self.name = name
        self.feed = feed
        self.history = history
        self.claims = {claim.seq: claim for claim in claims}
        self.releases = releases
        self.lock = asyncio.Lock()
        """Held while the memory is brought up to date."""
        self.writer: GroupWriter[Note, tuple[Entry, bool]] | None = None
        self.loading: asyncio.Task[None] | None = None
        """Fetches the older history."""

    def active_claims(self, now: float) -> list[Entry]:
        """Return the claims that stand, ascending."""
        self.claims = {seq: claim for seq, claim in self.claims.items() if is_shown(claim, now)}
        return list(self.claims.values())


class BoardService:
    """Everything the routes call."""

    def __init__(self, settings: BoardSettings, store: Store, tokens: TokenBook, clock: Clock) -> None:
        self.settings = settings
        self.store = store
        self.tokens = tokens
        self.clock = clock
        self.metrics = Metrics()
        self.reads = RateLimiter(Rate(settings.read_rate, settings.read_burst), clock)
        self.writes = RateLimiter(Rate(settings.write_rate, settings.write_burst), clock)
        self.workers: dict[str, dict[str, WorkerTold]] = {}
        """What node hosts told of the workers of a board, by name; in memory only."""
        self._boards: dict[str, OpenBoard] = {}
        self._opening = asyncio.Lock()
        self._cursors: dict[tuple[str, str], int] = {}
        self._acks: GroupWriter[tuple[str, str, int], None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._outage = Outage(log, clock, "the database works again")
        self.stopping = False

    async def start(self) -> None:
        """Begin to follow the database."""
        await self.tokens.refresh()
        self._acks = GroupWriter(self._save_cursors, room=self.settings.queue_notes, batch=self.settings.batch_notes)
        self._follower = asyncio.create_task(self._follow())

    def stop_streams(self) -> None:
        """End all streams, so that connections can close."""
        self.stopping = True
        for board in self._boards.values():
            board.feed.close()

    async def aclose(self) -> None:
        """Write what waits and stop."""
        self.stop_streams()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        for board in self._boards.values():
            if board.loading is not None:
                board.loading.cancel()
                await asyncio.gather(board.loading, return_exceptions=True)
            if board.writer is not None:
                await board.writer.aclose()
        if self._acks is not None:
            await self._acks.aclose()
        await self.store.aclose()

    async def board(self, name: str) -> OpenBoard:
        """Return a board, read into memory at its first use."""
        found = self._boards.get(name)
        if found is not None:
            return found
        async with self._opening:
            found = self._boards.get(name)
            if found is None:
                head = await self.store.head(name)
                tail = await self.store.after(
                    name, max(0, head.seq - self.settings.ring_entries), self.settings.ring_entries
                )
                claims = await self.store.claims(name, self.clock.time())
                last = tail[-1].seq if tail else 0
                feed = Feed(tail, last, self.settings.ring_entries)
                history = History(feed.floor, self.settings.grep_megabytes * 1_000_000)
                history.extend(tail)
                found = self._boards[name] = OpenBoard(name, feed, history, claims, head.releases)
                if history.floor > 0:
                    found.loading = asyncio.create_task(self._load_history(name, history))
                if self.stopping:
                    feed.close()
        return found

    async def write(self, name: str, note: Note) -> Admitted:
        """Write a note; it is committed when this returns."""
        board = await self.board(name)
        if board.writer is None:
            await self.store.ensure_board(name, self.clock.time())
            if board.writer is None:

                async def commit(notes: Sequence[Note]) -> Sequence[tuple[Entry, bool]]:
                    return await self._commit(board, notes)

                board.writer = GroupWriter(commit, room=self.settings.queue_notes, batch=self.settings.batch_notes)
        started = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.settings.write_seconds):
                entry, repeated = await board.writer.submit(note)
        except TimeoutError:
            raise storage_unavailable() from None
        self.metrics.wrote(entry.type, self.clock.monotonic() - started, repeated=repeated)
        alike: list[Overlap] = []
        if entry.type is EntryType.CLAIM:
            standing = board.active_claims(self.clock.time())
            alike = overlaps(entry, standing, self.settings.overlap_score)
        return Admitted(entry, repeated, tuple(alike))

    async def read(self, name: str, limit: int, after: int | None, type_: EntryType | None) -> tuple[list[Entry], int]:
        """Return what the listing shows, ascending, and the head: the newest `limit`, or the first after `after`."""
        board = await self.board(name)
        now = self.clock.time()
        head = board.feed.head
        recent = board.feed.after(board.feed.floor if after is None else after)
        shown = [entry for entry in recent or () if is_shown(entry, now) and (type_ is None or entry.type is type_)]
        if after is None:
            if len(shown) < limit and board.feed.floor > 0:
                shown = await self.store.newest(name, limit, type_=type_, shown_at=now)
            shown = shown[-limit:]
        elif recent is None:
            shown = await self.store.after(name, after, limit, type_=type_, shown_at=now)
        return shown[:limit], head

    async def grep(self, name: str, terms: Sequence[Sequence[str]], before: int | None, limit: int) -> list[Entry]:
        """Return entries that contain every term of at least one group, newest first; terms are in folded case."""
        board = await self.board(name)
        seqs, floor = await board.history.search(terms, before, limit)
        known = {entry.seq: entry for seq in seqs for entry in board.feed.after(seq - 1, 1) or ()}
        missing = [seq for seq in seqs if seq not in known]
        if missing:
            known |= {entry.seq: entry for entry in await self.store.listed(name, missing)}
        listed = [known[seq] for seq in seqs]
        if floor > 0 and len(listed) < limit:  # what is not in memory
            older = min(floor + 1, before or floor + 1)
            listed += await self.store.grep(name, terms, older, limit - len(listed))
        return listed

    async def unfold(self, name: str, seq: int) -> tuple[Entry, str]:
        """Return an entry and its detail; Refusal (404) when there is none."""
        found = await self.store.unfold(name, seq)
        if found is None:
            raise refuse(404, "no_entry", f"label: there is no G{seq} on board {name!r}.")
        return found

    async def release(self, name: str, seq: int, worker: str) -> Entry:
        """Release the worker's own claim; Refusal 404, 403 or 422 when it cannot."""
        entry, _ = await self.unfold(name, seq)
        if entry.type is not EntryType.CLAIM:
            raise refuse(422, "not_a_claim", f"label: {entry.label} is a {entry.type}; only a CLAIM can be released.")
        if entry.worker != worker:
            raise refuse(
                403, "not_yours", f"label: {entry.label} is {entry.worker}'s claim; only its worker may release it."
            )
        board = await self.board(name)
        now = self.clock.time()
        await self.store.release(name, seq, worker, now)
        await self._catch_up(board)
        return (await self.unfold(name, seq))[0]

    async def pending(self, name: str, agent: str, ack: int | None) -> Pending:
        """Return what others wrote since what `agent` has acknowledged, after acknowledging `ack`.

        Of an agent that is far behind only the newest entries are looked at; the older ones are counted, its own among
        them: an answer must not cost what the board ever held.
        """
        board = await self.board(name)
        feed = board.feed
        cursor = self._cursors.get((name, agent))
        if cursor is None:
            stored = await self.store.cursor(name, agent)
            # Another call of the agent may have moved it meanwhile.
            cursor = self._cursors[name, agent] = max(stored, self._cursors.get((name, agent), 0))
        if ack is not None and min(ack, feed.head) > cursor:
            cursor = min(ack, feed.head)
            assert self._acks is not None
            await self._acks.submit((name, agent, cursor))
            self._cursors[name, agent] = max(cursor, self._cursors[name, agent])
        self.metrics.pending_calls += 1
        now = self.clock.time()
        head = feed.head
        limit = self.settings.pending_notices
        start = max(cursor, min(feed.floor, head - REACH))
        unseen = feed.after(start)
        if unseen is None:
            picked, counts = await self.store.unseen(name, agent, start, head, now, limit)
        else:
            picked, counts = pick(unseen, agent, now, limit)
        return Pending(tuple(notices(picked, counts, name, cursor, head, now, older=start - cursor)), head)

    def nothing_pending(self, name: str, agent: str) -> int | None:
        """Return the cursor when it is known in memory that `agent` has acknowledged everything, else None."""
        board = self._boards.get(name)
        cursor = self._cursors.get((name, agent))
        if board is None or cursor is None or cursor != board.feed.head:
            return None
        self.metrics.pending_calls += 1
        return cursor

    def new_key(self) -> str:
        """Return the key of a note whose client chose none."""
        return f"i:{uuid.uuid4().hex}"

    def storage_failed(self, error: Exception, at: str) -> bool:
        """Take note that reading or writing (`at`) failed; False when it was the statement and not the storage."""
        if no_room(error):
            self._outage.failed("the disk is full", error, at=at)
        elif isinstance(error, OUTAGE):
            self._outage.failed("the database is away", error, at=at)
        else:
            return False
        return True

    def boards(self) -> list[OpenBoard]:
        """Return the boards in memory."""
        return list(self._boards.values())

    async def _commit(self, board: OpenBoard, notes: Sequence[Note]) -> Sequence[tuple[Entry, bool]]:
        now = self.clock.time()
        seconds = self.settings.claim_seconds
        after = Head(board.feed.head, board.releases)
        done = await self._written(self.store.append(board.name, notes, now, seconds, after=after))
        written = {entry.seq: entry for entry in done.entries}
        try:
            async with board.lock:
                fresh = [written[seq] for seq in sorted(written) if seq > board.feed.head]
                whole = board.feed.head + len(fresh) == done.head.seq and done.head.releases == board.releases
                if whole:
                    self._take(board, fresh)
            if not whole:
                await self._catch_up(board)
        except (SQLAlchemyError, DatabaseUnavailable) as error:
            # The notes are committed and must be answered; the follower repairs the memory.
            if not self.storage_failed(error, "reading"):
                log.warning("memory not brought up to date", extra={"board": board.name}, exc_info=error)
        return [
            (entry, repeated and note.keyed)
            for entry, repeated, note in zip(done.entries, done.repeated, notes, strict=True)
        ]

    def _take(self, board: OpenBoard, fresh: list[Entry]) -> None:
        fresh = [entry for entry in fresh if entry.seq > board.feed.head]
        board.claims.update({entry.seq: entry for entry in fresh if entry.type is EntryType.CLAIM and entry.active})
        board.feed.extend(fresh)
        board.history.extend(fresh)

    async def _catch_up(self, board: OpenBoard) -> None:
        """Take over whatever the database has and the memory has not."""
        async with board.lock:
            head = await self.store.head(board.name)
            while board.feed.head < head.seq:
                fresh = await self.store.after(board.name, board.feed.head, CATCH_UP)
                if not fresh:
                    break
                self._take(board, fresh)
            if head.releases != board.releases:
                now = self.clock.time()
                claims = {claim.seq: claim for claim in await self.store.claims(board.name, now)}
                gone = [claim for seq, claim in board.claims.items() if seq not in claims and is_shown(claim, now)]
                board.claims = claims
                board.feed.keep_claims(claims)
                board.feed.release(gone)
                board.releases = head.releases

    async def _load_history(self, name: str, history: History) -> None:
        """Bring the older history into memory, block by block backwards, as far as there is room."""
        while history.floor > 0 and not history.full:
            until = history.floor
            after = max(0, until - BLOCK)
            try:
                text = await self.store.folded(name, after, until)
            except (SQLAlchemyError, DatabaseUnavailable) as error:
                if not self.storage_failed(error, "reading"):
                    log.warning("history not loaded yet", extra={"board": name, "until": until}, exc_info=error)
                await self.clock.sleep(LOAD_WAIT)
                continue
            if history.floor != until:
                continue  # what was written meanwhile took the room of what this was to follow
            if not history.prepend(text, until - after):
                log.error("history is not gapless; grep reads it from the database", extra={"board": name})
                return

    async def _save_cursors(self, acks: Sequence[tuple[str, str, int]]) -> Sequence[None]:
        moved: dict[tuple[str, str], int] = {}
        for name, agent, seq in acks:
            moved[name, agent] = max(seq, moved.get((name, agent), 0))
        await self._written(self.store.save_cursors(moved))
        return [None] * len(acks)

    async def _written(self, writing: Awaitable[Written]) -> Written:
        try:
            result = await writing
        except (SQLAlchemyError, DatabaseUnavailable) as error:
            # Said here as well: those who wait for the answer may be gone before it comes.
            self.storage_failed(error, "writing")
            raise
        self._outage.worked("writing")
        return result

    async def _follow(self) -> None:
        while True:
            await self.clock.sleep(self.settings.follow_seconds)
            try:
                heads = await self.store.heads()
                for board in self.boards():
                    head = heads.get(board.name, Head())
                    if head.seq > board.feed.head or head.releases != board.releases:
                        await self._catch_up(board)
                await self.tokens.refresh()
            except Exception as error:  # whatever it is, the next look has its chance: others' writes must be seen
                if not self.storage_failed(error, "reading"):
                    log.exception("could not follow the database")
            else:
                self._outage.worked("reading")
