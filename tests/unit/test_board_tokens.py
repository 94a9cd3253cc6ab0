"""The tokens a board service keeps in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Executable

from agensh.db import open_engine
from agensh.urls import sqlite_url
from board_service.auth import Role, TokenBook
from board_service.database import prepare


class SlowBook(TokenBook):
    """Something happens, once, between what a read found and its return."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def _first(self, query: Executable) -> Any:
        row = await super()._first(query)
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            await happens()
        return row


async def test_a_token_revoked_by_another_process_while_it_is_looked_up_is_not_remembered(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "board.sqlite3")
    prepare(url)
    engine = open_engine(url)
    try:
        other = TokenBook(engine, "")
        token = await other.create("w1", Role.WORKER, "main", 0.0)
        book = SlowBook(engine, "")
        await book.refresh()

        async def revoked_and_noticed() -> None:
            await other.revoke("w1", None)
            await book.refresh()

        book.meanwhile = revoked_and_noticed
        assert await book.find(token) is not None  # it was valid when it was read
        assert await book.find(token) is None
    finally:
        await engine.dispose()
