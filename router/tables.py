"""Tables of the event runtime: the queues of the workers and the record of the run.

One database holds one run. The record is complete: every event with its transitions, every post of the task channel,
every turn, every tool call, and every notice with the time it was shown; the report reads nothing else of the node
host. Times are epoch seconds.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

VERSION_TABLE = "alembic_version_router"
MIGRATIONS = Path(__file__).parent / "migrations"
DEDUPE_CAP = 190  # characters, the contract of NewEvent.dedupe_key

metadata = MetaData()


def exact(length: int) -> TypeEngine[str]:
    """A string that compares with case and accents, which MySQL's default collation ignores."""
    collated = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(collated, "mysql", "mariadb")


def words() -> TypeEngine[str]:
    """What others say, kept with every character whatever set the database has by default."""
    return Text().with_variant(mysql.TEXT(charset="utf8mb4"), "mysql", "mariadb")


def long_text() -> TypeEngine[str]:
    """Text of any length; MySQL's plain TEXT ends at 64 KiB."""
    return Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")


def key() -> TypeEngine[int]:
    """A 64-bit key that SQLite numbers by itself."""
    return BigInteger().with_variant(Integer, "sqlite")


runs = Table(
    "runs",
    metadata,
    Column("run_id", exact(120), primary_key=True),
    Column("t0", Double, nullable=False),
    Column("state", String(16), nullable=False),  # running | finished | aborted
    Column("stopped_at", Double),
)

cursors = Table(
    "cursors",
    metadata,
    Column("worker", exact(64), primary_key=True),
    Column("source", exact(190), primary_key=True),
    Column("value", long_text(), nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", key(), primary_key=True, autoincrement=True),
    Column("worker", exact(64), nullable=False),
    Column("dedupe_key", exact(DEDUPE_CAP), nullable=False),
    Column("source", String(16), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("thread", exact(255), nullable=False),
    Column("summary", words(), nullable=False),
    Column("body", long_text(), nullable=False),
    Column("observed_at", Double, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("state", String(12), nullable=False),  # queued | in_flight | sent | dead | withdrawn
    Column("turn_id", BigInteger),
    Column("attempts", Integer, nullable=False),  # deliveries that failed
    Column("handed_out", Integer, nullable=False),  # times it was shown; above 1 it was redelivered
    Column("available_at", Double, nullable=False),
    Column("reason", words(), nullable=False),
    Column("via", String(8)),  # turn | notice | read
    Column("delivered_at", Double),
    Unique("worker", "dedupe_key", name="uq_events_worker_dedupe"),
    # What a poll reads: its cost depends on what is waiting, not on the history.
    Index("ix_events_waiting", "worker", "state", "available_at"),
)

posts = Table(
    "posts",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # gapless, in the order of the commits
    Column("post_id", exact(64), nullable=False),
    Column("author", exact(64), nullable=False),
    Column("message", long_text(), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("root_id", exact(64), nullable=False),
    Column("queued_at", Double, nullable=False),
    Unique("post_id", name="uq_posts_post"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", key(), primary_key=True, autoincrement=True),
    Column("worker", exact(64), nullable=False),
    Column("session_id", exact(255), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("outcome", String(20)),
    Column("reason", words(), nullable=False),
    Column("prompt", long_text(), nullable=False),
    Column("text", long_text(), nullable=False),
    Column("events", Integer, nullable=False),
    Column("entries", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("cost_usd", Double, nullable=False),
    Index("ix_turns_worker", "worker", "id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("worker", exact(64), primary_key=True),
    Column("session_id", exact(255), nullable=False),
    Column("number", Integer, nullable=False),  # how many sessions the worker has had
    Column("primed", Boolean, nullable=False),  # the session has received the worker prompt
    Column("started_at", Double),
    Column("failures", Integer, nullable=False),  # failed turns in a row
    Column("restarts", Integer, nullable=False),  # fresh sessions in a row without a completed turn
    Column("parked_reason", words(), nullable=False),
    Column("parked_at", Double),
)

processes = Table(
    "processes",
    metadata,
    Column("id", key(), primary_key=True, autoincrement=True),
    Column("worker", exact(64), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started", String(80), nullable=False),  # boot id and start time in ticks: a reused pid differs
    Column("spawned_at", Double, nullable=False),
    Column("ended_at", Double),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("id", key(), primary_key=True, autoincrement=True),
    Column("worker", exact(64), nullable=False),
    Column("turn_id", BigInteger),
    Column("tool", String(190).with_variant(mysql.VARCHAR(190, charset="utf8mb4"), "mysql", "mariadb"), nullable=False),
    Column("kind", String(8), nullable=False),  # mcp | shell | edit | other
    Column("arguments", long_text(), nullable=False),
    Column("ok", Boolean),
    Column("summary", long_text(), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Index("ix_tool_calls_turn", "worker", "turn_id"),
)

notices = Table(
    "notices",
    metadata,
    Column("id", key(), primary_key=True, autoincrement=True),
    Column("hand_out", exact(80), nullable=False),  # names one hand-out, so that its acknowledgement finds it
    Column("worker", exact(64), nullable=False),
    Column("ref", exact(40), nullable=False),  # g<seq> | e<event id>
    Column("kind", String(16), nullable=False),  # entry | direct_message
    Column("posted_at", Double, nullable=False),
    Column("shown_at", Double, nullable=False),
    Column("acked_at", Double),
    Column("via", String(8), nullable=False),  # mcp | hook | turn
    Index("ix_notices_hand_out", "hand_out"),
)
