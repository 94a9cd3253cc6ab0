"""Work on the database without the service."""

from __future__ import annotations

import asyncio

from agensh.clock import Clock
from agensh.db import migrate, open_engine
from agensh.errors import UsageError
from board_service.auth import Role, TokenBook
from board_service.board import check_agent_name, check_board_name
from board_service.errors import Refusal
from board_service.migrations import SCRIPTS
from board_service.settings import BoardSettings, database_url
from board_service.tables import VERSION_TABLE


async def create_token(settings: BoardSettings, worker: str, board: str, role: str, clock: Clock) -> str:
    """Return a new token, stored in the database (which is created when it is not there); UsageError for a bad name."""
    if role not in set(Role):
        raise UsageError(f"role: {role!r} is none; use {', '.join(Role)}.")
    try:
        check_agent_name(worker)
        check_board_name(board)
    except Refusal as refusal:
        raise UsageError(str(refusal)) from None
    url = database_url(settings)
    await asyncio.to_thread(migrate, url, SCRIPTS, version_table=VERSION_TABLE)
    engine = open_engine(url)
    try:
        return await TokenBook(engine, "").create(worker, Role(role), board, clock.time())
    finally:
        await engine.dispose()


async def has_tokens(settings: BoardSettings) -> bool:
    """Say whether anybody has a token, in a database whose tables are there."""
    engine = open_engine(database_url(settings))
    try:
        return await TokenBook(engine, "").any_stored()
    finally:
        await engine.dispose()
