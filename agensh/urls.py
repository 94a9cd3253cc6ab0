"""Database URLs, apart from the engines: whoever only names a database need not load them."""

from __future__ import annotations

from pathlib import Path


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite+aiosqlite:///{path.absolute()}"
