"""The chaos suite: short in `make test`, long in `make chaos` (see `tests/support/chaos.py`)."""

from __future__ import annotations

from tests.support.mariadb import mariadb_server

__all__ = ["mariadb_server"]
