"""Tables of the board. Times are milliseconds since the epoch; names compare byte by byte on every database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.dialects import mysql

VERSION_TABLE = "board_version"

metadata = MetaData()

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}
_DETAIL = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")  # TEXT ends at 65,535 bytes, one short of the cap

boards = Table(
    "board_boards",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("head_seq", BigInteger, nullable=False),
    # Counts releases, so that other processes on the same database notice one.
    Column("releases", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    **_MYSQL,
)

entries = Table(
    "board_entries",
    metadata,
    Column("board", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("worker", String(128), nullable=False),
    Column("type", String(16), nullable=False),
    Column("content", String(300), nullable=False),
    # What grep looks through: content and worker in folded case.
    Column("folded", Text, nullable=False),
    Column("detail", _DETAIL, nullable=False),
    Column("has_detail", Boolean(create_constraint=False), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=True),
    Column("released_at", BigInteger, nullable=True),
    # "k:" and the client's key, or "i:" and one of ours: a transaction run again never writes a note twice.
    Column("note_key", String(160), nullable=False),
    UniqueConstraint("board", "worker", "note_key", name="board_entries_key"),
    Index("board_entries_type", "board", "type", "seq"),
    Index("board_entries_expiry", "board", "expires_at"),
    **_MYSQL,
)

cursors = Table(
    "board_cursors",
    metadata,
    Column("board", String(64), primary_key=True),
    Column("agent", String(128), primary_key=True),
    Column("cursor_seq", BigInteger, nullable=False),
    **_MYSQL,
)

tokens = Table(
    "board_tokens",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("worker", String(128), nullable=False),
    # Empty for an admin: every board.
    Column("board", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("token_hash", String(64), nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Index("board_tokens_worker", "worker"),
    sqlite_autoincrement=True,  # ids are never used again, so that they tell whether anything changed
    **_MYSQL,
)
