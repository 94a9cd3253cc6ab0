"""Tables of the gateway: the workers' keys and every request with its tokens. Times are epoch seconds."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

VERSION_TABLE = "alembic_version_gateway"
MIGRATIONS = Path(__file__).parent / "migrations"
MODEL_CAP = 190  # characters of a model's name that are kept

metadata = MetaData()


def exact(length: int) -> TypeEngine[str]:
    """A string that compares with case and accents, which MySQL's default collation ignores."""
    collated = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(collated, "mysql", "mariadb")


keys = Table(
    "gateway_keys",
    metadata,
    Column("hash", exact(64), primary_key=True),
    Column("worker", exact(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
)

requests = Table(
    "gateway_requests",
    metadata,
    Column("id", exact(32), primary_key=True),
    Column("worker", exact(64), nullable=False),
    Column("wire", String(16), nullable=False),
    Column("model", exact(MODEL_CAP), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("state", String(12), nullable=False),  # open | metered | unmetered | failed | refused
    Column("reason", String(190), nullable=False),  # why it is unmetered, failed or refused
    Column("status", Integer, nullable=False),  # HTTP status of the answer; 0 while there is none
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("cost_usd", Double),  # null: the model has no price, or nothing was reported
    Index("ix_gateway_requests_worker", "worker", "started_at"),
    Index("ix_gateway_requests_state", "state"),
)
