"""The board's database: its URL, and its tables brought up to date."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from agensh.db import migrate
from agensh.errors import AgenshError, UsageError
from agensh.urls import sqlite_url
from board_service.migrations import SCRIPTS
from board_service.settings import BoardSettings
from board_service.tables import VERSION_TABLE

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "mysql": "mysql+aiomysql", "mariadb": "mysql+aiomysql"}
ATTEMPTS = 4
WAIT = 0.5  # seconds between two attempts


def database_url(settings: BoardSettings) -> str:
    """Return the database's URL: the one given, or the file in the data folder. UsageError for an unsupported one."""
    if not settings.db:
        return sqlite_url(Path(settings.data) / "board.sqlite3")
    try:
        url = make_url(settings.db)
    except ArgumentError:
        raise UsageError(
            "db: it is not a database URL; use sqlite:////path/file or mysql://user:password@host/name."
        ) from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise UsageError(f"db: {url.get_backend_name()!r} is not supported; use sqlite or mysql (also for MariaDB).")
    return url.set(drivername=driver).render_as_string(hide_password=False)


def prepare(url: str) -> None:
    """Bring the tables up to date (blocking); AgenshError when the database cannot be used.

    Tried a few times: two processes may create the tables at once, and then the later one finds them there.
    """
    database = make_url(url)
    if database.get_backend_name() == "sqlite" and database.database:
        # Readable by its owner only: it holds what the team wrote.
        with contextlib.suppress(OSError):  # migrating fails with a reason
            Path(database.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        try:
            migrate(url, SCRIPTS, version_table=VERSION_TABLE)
        except (SQLAlchemyError, OSError) as error:
            if attempt == ATTEMPTS - 1:
                reason = str(getattr(error, "orig", None) or error)
                raise AgenshError(f"database {_shown(database)} cannot be used: {reason}") from error
            time.sleep(WAIT)
        else:
            return


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)
