"""Alembic entry point of the board's tables."""

from __future__ import annotations

from alembic import context

from agensh.db import run_migrations
from board_service.tables import metadata

run_migrations(context.config, metadata)
