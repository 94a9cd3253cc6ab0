"""The board's database: its URL, and its tables brought up to date."""

from __future__ import annotations

from pathlib import Path

from agensh import db_setup
from agensh.urls import sqlite_url
from board_service.migrations import SCRIPTS
from board_service.settings import BoardSettings
from board_service.tables import VERSION_TABLE


def database_url(settings: BoardSettings) -> str:
    """Return the database's URL: the one given, or the file in the data folder. UsageError for an unsupported one."""
    if not settings.db:
        return sqlite_url(Path(settings.data) / "board.sqlite3")
    return db_setup.given_url(settings.db)


def prepare(url: str) -> None:
    """Bring the tables up to date (blocking); AgenshError when the database cannot be used."""
    db_setup.prepare(url, SCRIPTS, version_table=VERSION_TABLE)
