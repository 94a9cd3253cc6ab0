"""Alembic's entry point for the gateway's tables."""

from __future__ import annotations

from alembic import context

from agensh.db import run_migrations
from agensh.gateway.tables import metadata

run_migrations(context.config, metadata)
