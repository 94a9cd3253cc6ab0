"""A service's database as a person names it: its URL checked, its tables brought up to date, one sentence if not."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from agensh.db import migrate
from agensh.errors import AgenshError, UsageError

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "mysql": "mysql+aiomysql", "mariadb": "mysql+aiomysql"}
ATTEMPTS = 4
WAIT = 0.5  # seconds between two attempts


def given_url(text: str) -> str:
    """Return the URL of a database as our engines take it; UsageError for one that is none or not supported."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(
            "db: it is not a database URL; use sqlite:////path/file or mysql://user:password@host:port/name."
        ) from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise UsageError(f"db: {url.get_backend_name()!r} is not supported; use sqlite or mysql (also for MariaDB).")
    if "@" in (url.host or ""):
        raise UsageError("db: there is more than one '@'; write one in the user or the password as %40.")
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise UsageError(f"db: {url.port} is not a port; expected 1 to 65535.")
    return url.set(drivername=driver).render_as_string(hide_password=False)


def prepare(url: str, scripts: Path, *, version_table: str) -> None:
    """Bring the tables up to date (blocking); AgenshError when the database cannot be used.

    Tried a few times: two processes may create the tables at once, and then the later one finds them there.
    """
    database = make_url(url)
    if database.get_backend_name() == "sqlite" and database.database:
        # Readable by its owner only: it holds what the team wrote and spent.
        with contextlib.suppress(OSError):  # migrating fails with a reason
            Path(database.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        try:
            migrate(url, scripts, version_table=version_table)
        except (SQLAlchemyError, OSError) as error:
            if attempt == ATTEMPTS - 1:
                reason = str(getattr(error, "orig", None) or error)
                raise AgenshError(f"database {_shown(database)} cannot be used: {reason}") from error
            time.sleep(WAIT)
        else:
            return


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)
