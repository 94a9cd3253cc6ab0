"""The queues and the record of a run.

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


def _long_text() -> TypeEngine[str]:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _key() -> TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "cursors",
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("source", _exact(190), nullable=False),
        sa.Column("value", _long_text(), nullable=False),
        sa.PrimaryKeyConstraint("worker", "source"),
    )
    op.create_table(
        "events",
        sa.Column("id", _key(), autoincrement=True, nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("dedupe_key", _exact(190), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("thread", _exact(255), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("body", _long_text(), nullable=False),
        sa.Column("observed_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("handed_out", sa.Integer(), nullable=False),
        sa.Column("available_at", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("via", sa.String(length=8), nullable=True),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("worker", "dedupe_key", name="uq_events_worker_dedupe"),
    )
    op.create_index("ix_events_waiting", "events", ["worker", "state", "available_at"], unique=False)
    op.create_table(
        "notices",
        sa.Column("id", _key(), autoincrement=True, nullable=False),
        sa.Column("hand_out", _exact(80), nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("ref", _exact(40), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("posted_at", sa.Double(), nullable=False),
        sa.Column("shown_at", sa.Double(), nullable=False),
        sa.Column("acked_at", sa.Double(), nullable=True),
        sa.Column("via", sa.String(length=8), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notices_hand_out", "notices", ["hand_out"], unique=False)
    op.create_table(
        "processes",
        sa.Column("id", _key(), autoincrement=True, nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.String(length=80), nullable=False),
        sa.Column("spawned_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", _exact(120), nullable=False),
        sa.Column("t0", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stopped_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "sessions",
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("session_id", _exact(255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("primed", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("parked_reason", sa.Text(), nullable=False),
        sa.Column("parked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("worker"),
    )
    op.create_table(
        "tool_calls",
        sa.Column("id", _key(), autoincrement=True, nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("turn_id", sa.BigInteger(), nullable=True),
        sa.Column("tool", sa.String(length=190), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("arguments", _long_text(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=True),
        sa.Column("summary", _long_text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_tool_calls_turn", "tool_calls", ["worker", "turn_id"], unique=False)
    op.create_table(
        "turns",
        sa.Column("id", _key(), autoincrement=True, nullable=False),
        sa.Column("worker", _exact(64), nullable=False),
        sa.Column("session_id", _exact(255), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("prompt", _long_text(), nullable=False),
        sa.Column("text", _long_text(), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_turns_worker", "turns", ["worker", "id"], unique=False)


def downgrade() -> None:
    """Drop the tables."""
    op.drop_index("ix_turns_worker", table_name="turns")
    op.drop_table("turns")
    op.drop_index("ix_tool_calls_turn", table_name="tool_calls")
    op.drop_table("tool_calls")
    op.drop_table("sessions")
    op.drop_table("runs")
    op.drop_table("processes")
    op.drop_index("ix_notices_hand_out", table_name="notices")
    op.drop_table("notices")
    op.drop_index("ix_events_waiting", table_name="events")
    op.drop_table("events")
    op.drop_table("cursors")
