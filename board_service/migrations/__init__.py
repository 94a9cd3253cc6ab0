"""Alembic history of the board's tables."""

from __future__ import annotations

from pathlib import Path

SCRIPTS = Path(__file__).parent
