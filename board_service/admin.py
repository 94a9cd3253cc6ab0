"""Work on the database without the service."""

from __future__ import annotations

import asyncio

from agensh.clock import Clock
from agensh.db import open_engine
from agensh.errors import UsageError
from board_service.auth import Role, TokenBook
from board_service.board import check_agent_name, check_board_name
from board_service.database import database_url, prepare
from board_service.errors import Refusal
from board_service.settings import BoardSettings


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
    await asyncio.to_thread(prepare, url)
    engine = open_engine(url)
    try:
        return await TokenBook(engine, "").create(worker, Role(role), board, clock.time())
    finally:
        await engine.dispose()
