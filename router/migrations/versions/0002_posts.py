"""The posts of the task channel, one row each.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _exact(length: int) -> TypeEngine[str]:
    collated = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(collated, "mysql", "mariadb")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "posts",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("post_id", _exact(64), nullable=False),
        sa.Column("author", _exact(64), nullable=False),
        sa.Column(
            "message", sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb"), nullable=False
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("root_id", _exact(64), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("post_id", name="uq_posts_post"),
    )


def downgrade() -> None:
    """Drop the table; posts that were not delivered yet are read from the chat again by the former version."""
    op.drop_table("posts")
