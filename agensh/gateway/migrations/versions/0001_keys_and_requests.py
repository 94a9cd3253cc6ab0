"""The keys and the requests.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _exact(length: int) -> TypeEngine[str]:
    collated = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(collated, "mysql", "mariadb")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "gateway_keys",
        sa.Column("hash", _exact(64), nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "gateway_requests",
        sa.Column("id", _exact(32), nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("wire", sa.String(length=16), nullable=False),
        sa.Column("model", _exact(190), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("reason", sa.String(length=190), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_gateway_requests_worker", "gateway_requests", ["worker", "started_at"], unique=False)
    op.create_index("ix_gateway_requests_state", "gateway_requests", ["state"], unique=False)


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("gateway_requests")
    op.drop_table("gateway_keys")
