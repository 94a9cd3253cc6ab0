"""Alembic's entry point for the event runtime's tables."""

from __future__ import annotations

from alembic import context

from agensh.db import run_migrations
from router.tables import metadata

run_migrations(context.config, metadata)
