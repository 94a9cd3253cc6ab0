"""Who is asking: bearer tokens, stored as hashes, each bound to a worker, a role and a board.

Valid tokens are held in memory; a token another process made is found at its first use, one that another process
revoked is forgotten at the next look at the database (`follow_seconds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Executable, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from agensh.db import begin_write, retrying
from agensh.identity import new_token, token_hash, token_matches
from board_service.errors import Refusal, refuse
from board_service.tables import tokens

BOOTSTRAP_ADMIN = "admin"
HASHES_AT_ONCE = 500


class Role(StrEnum):
    """What a token may do."""

    WORKER = "worker"
    READER = "reader"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of a token."""

    name: str
    role: Role
    board: str
    """Empty for an admin: every board."""

    def may_read(self, board: str) -> None:
        """Refusal (403) unless the board is this principal's."""
        if self.role is not Role.ADMIN and board != self.board:
            raise refuse(403, "other_board", f"board: your token is for {self.board!r}, not for {board!r}.")

    def may_write(self, board: str) -> None:
        """Refusal (403) for readers and for other boards."""
        self.may_read(board)
        if self.role is Role.READER:
            raise refuse(403, "read_only", "Your token may only read; writing needs a worker's token.")

    def may_administer(self) -> None:
        """Refusal (403) for all but admins."""
        if self.role is not Role.ADMIN:
            raise refuse(403, "not_admin", f"This needs an admin token; yours is a {self.role}'s.")


def unauthorised() -> Refusal:
    """Return what a request without a valid token gets."""
    return refuse(401, "unauthorised", "Send a valid token: Authorization: Bearer <token>.")


class TokenBook:
    """The tokens of the service."""

    def __init__(self, engine: AsyncEngine, admin_token: str) -> None:
        self._engine = engine
        self._admin_hash = token_hash(admin_token) if admin_token else ""
        self._known: dict[str, Principal] = {}
        self._state = (0, 0, 0)
        self._unsure: set[str] = set()
        """Found since the last look: made and revoked between two looks, it leaves no trace among the ids."""
        self.generation = 0
        """Changes whenever a token may have been revoked."""

    async def find(self, token: str) -> Principal | None:
        """Return who owns `token`, None for nobody."""
        if self._admin_hash and token_matches(token, self._admin_hash):
            return Principal(BOOTSTRAP_ADMIN, Role.ADMIN, "")
        hashed = token_hash(token)
        found = self._known.get(hashed)
        if found is None:
            query = select(tokens.c.worker, tokens.c.role, tokens.c.board).where(tokens.c.token_hash == hashed)
            generation = self.generation
            row = await self._first(query)
            if row is not None:
                found = Principal(row.worker, Role(row.role), row.board)
                # A revocation that was noticed meanwhile may concern this very token: what was read before it does
                # not count for later.
                if generation == self.generation:
                    self._known[hashed] = found
                    self._unsure.add(hashed)
        return found

    async def refresh(self) -> None:
        """Forget everything when the stored tokens changed since the last call."""
        # Not by the highest id: one that was made later may be committed earlier, and then a token that appears
        # would make up for one that is gone.
        squares = func.sum(tokens.c.id * tokens.c.id)
        row = await self._first(select(func.count(), func.sum(tokens.c.id), squares).select_from(tokens))
        state = (0, 0, 0) if row is None else (int(row[0]), int(row[1] or 0), int(row[2] or 0))
        unsure = list(self._unsure)
        if state != self._state or not await self._all_stored(unsure):
            self._forget()
            self._state = state
        self._unsure.difference_update(unsure)

    async def _all_stored(self, hashes: Sequence[str]) -> bool:
        for start in range(0, len(hashes), HASHES_AT_ONCE):
            some = hashes[start : start + HASHES_AT_ONCE]
            row = await self._first(select(func.count()).select_from(tokens).where(tokens.c.token_hash.in_(some)))
            if row is None or int(row[0]) != len(some):
                return False
        return True

    async def any_stored(self) -> bool:
        """Say whether there is any token at all."""
        return await self._first(select(tokens.c.id).limit(1)) is not None

    async def create(self, worker: str, role: Role, board: str, now: float) -> str:
        """Store a new token and return it; it is never shown again."""
        token = new_token("agb")
        values = {
            "worker": worker,
            "role": str(role),
            "board": "" if role is Role.ADMIN else board,
            "token_hash": token_hash(token),
            "created_at": round(now * 1000),
        }

        async def store() -> None:
            async with begin_write(self._engine) as connection:
                # A first try that was cut off may have committed: the hash is unique, so look before writing.
                query = select(tokens.c.id).where(tokens.c.token_hash == values["token_hash"])
                if (await connection.execute(query)).first() is None:
                    await connection.execute(insert(tokens).values(values))

        await retrying(store)
        return token

    async def revoke(self, worker: str, board: str | None) -> int:
        """Delete the worker's tokens (of one board, or of all with None) and return how many there were."""

        removed = 0

        async def remove() -> None:
            nonlocal removed
            async with begin_write(self._engine) as connection:
                query = delete(tokens).where(tokens.c.worker == worker)
                if board is not None:
                    query = query.where(tokens.c.board == board)
                # Committed by a try whose connection was lost, there are none left for the next one.
                removed = max(removed, int((await connection.execute(query)).rowcount))

        await retrying(remove)
        self._forget()
        return removed

    def _forget(self) -> None:
        self._known.clear()
        self.generation += 1

    async def _first(self, query: Executable) -> Any:
        async def read() -> Any:
            async with self._engine.connect() as connection:
                return (await connection.execute(query)).first()

        return await retrying(read)
