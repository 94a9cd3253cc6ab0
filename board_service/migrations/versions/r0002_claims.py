"""Active claims are found by their expiry, whatever the length of the history."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    op.create_index("board_entries_expiry", "board_entries", ["board", "expires_at"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("board_entries_expiry", "board_entries")
