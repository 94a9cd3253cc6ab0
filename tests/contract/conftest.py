"""What contract tests share: the databases."""

from __future__ import annotations

from tests.support.mariadb import mariadb_server
from tests.support.router_database import runtime_database

__all__ = ["mariadb_server", "runtime_database"]
