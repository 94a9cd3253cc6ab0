"""The gateway, on SQLite and on MariaDB."""

from __future__ import annotations

from tests.support.mariadb import mariadb_server

__all__ = ["mariadb_server"]
