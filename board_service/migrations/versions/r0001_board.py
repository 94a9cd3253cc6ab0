"""Boards, entries, cursors, tokens."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Create the four tables."""
    op.create_table(
        "board_boards",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("head_seq", sa.BigInteger, nullable=False),
        sa.Column("releases", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        **_MYSQL,
    )
    op.create_table(
        "board_entries",
        sa.Column("board", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("worker", sa.String(128), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("content", sa.String(300), nullable=False),
        sa.Column("folded", sa.Text, nullable=False),
        sa.Column("detail", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
        sa.Column("has_detail", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=True),
        sa.Column("released_at", sa.BigInteger, nullable=True),
        sa.Column("note_key", sa.String(160), nullable=False),
        sa.UniqueConstraint("board", "worker", "note_key", name="board_entries_key"),
        **_MYSQL,
    )
    op.create_index("board_entries_type", "board_entries", ["board", "type", "seq"])
    op.create_table(
        "board_cursors",
        sa.Column("board", sa.String(64), primary_key=True),
        sa.Column("agent", sa.String(128), primary_key=True),
        sa.Column("cursor_seq", sa.BigInteger, nullable=False),
        **_MYSQL,
    )
    op.create_table(
        "board_tokens",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("worker", sa.String(128), nullable=False),
        sa.Column("board", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    op.create_index("board_tokens_worker", "board_tokens", ["worker"])


def downgrade() -> None:
    """Drop the four tables."""
    op.drop_table("board_tokens")
    op.drop_table("board_cursors")
    op.drop_table("board_entries")
    op.drop_table("board_boards")
