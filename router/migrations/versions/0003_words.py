"""Words of others keep every character, also in a database whose default is a smaller character set.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_WORDS = (("events", "summary"), ("events", "reason"), ("turns", "reason"), ("sessions", "parked_reason"))


def upgrade() -> None:
    """Name the character set of each such column; SQLite has but one."""
    if op.get_bind().dialect.name == "sqlite":
        return
    for table, column in _WORDS:
        op.alter_column(table, column, type_=mysql.TEXT(charset="utf8mb4"), existing_nullable=False)
    op.alter_column("tool_calls", "tool", type_=mysql.VARCHAR(190, charset="utf8mb4"), existing_nullable=False)


def downgrade() -> None:
    """Leave the columns as they are: what they hold may not fit into a smaller set."""
