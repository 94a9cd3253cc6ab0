"""Settings of the board service: environment variables with the prefix `AGENSH_BOARD_`, or arguments."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from board_service.overlap import THRESHOLD


class BoardSettings(BaseSettings):
    """Every setting has a unit and a default; `docs/board.md` lists them (a test compares the two)."""

    model_config = SettingsConfigDict(env_prefix="AGENSH_BOARD_", extra="ignore", frozen=True)

    db: str = Field(default="", description="Database URL; empty means board.sqlite3 in the data folder.")
    data: str = Field(default="board-data", description="Data folder, used when no database URL is given.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8660, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    admin_token: SecretStr = Field(
        default=SecretStr(""), description="A bootstrap admin token, besides the stored ones; empty means none."
    )
    claim_seconds: float = Field(default=3600.0, gt=0, description="Seconds after which a CLAIM expires.")
    overlap_score: float = Field(
        default=THRESHOLD, ge=0, le=100, description="Similarity (0 to 100) from which two claims count as look-alikes."
    )
    ring_entries: int = Field(default=8192, ge=1, description="Recent entries a board keeps in memory.")
    grep_megabytes: int = Field(
        default=256, ge=1, description="Megabytes of text a board keeps in memory for grep; older entries are read."
    )
    queue_notes: int = Field(default=1024, ge=1, description="Notes that may wait for the writer of a board.")
    batch_notes: int = Field(default=128, ge=1, le=1000, description="Notes written in one transaction at most.")
    pending_notices: int = Field(default=20, ge=1, le=500, description="Entries one pending answer shows at most.")
    write_seconds: float = Field(
        default=10.0, gt=0, description="Seconds a note may wait for its commit before it is answered with 503."
    )
    heartbeat_seconds: float = Field(default=15.0, gt=0, description="Seconds between heartbeats of a quiet stream.")
    send_seconds: float = Field(default=30.0, gt=0, description="Seconds a stream may take no bytes before it is cut.")
    stream_lag: int = Field(
        default=4096, ge=1, description="Entries a live stream may fall behind before it is cut (it then resumes)."
    )
    write_rate: float = Field(
        default=100.0, ge=0, description="Writes a second of one worker, after its burst; 0 for no limit."
    )
    write_burst: int = Field(default=30_000, ge=1, description="Writes of one worker before its rate counts.")
    read_rate: float = Field(
        default=500.0, ge=0, description="Reads a second of one worker, after its burst; 0 for no limit."
    )
    read_burst: int = Field(default=100_000, ge=1, description="Reads of one worker before its rate counts.")
    body_seconds: float = Field(default=30.0, gt=0, description="Seconds a request's body may take to arrive.")
    follow_seconds: float = Field(
        default=1.0, gt=0, description="Seconds between two looks for what other processes wrote to the database."
    )
