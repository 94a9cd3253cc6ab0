"""Entries of the board: the types, the caps, and the shape every part passes around.

Kept free of third-party imports: the stdio shim loads it and has to stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EntryType(StrEnum):
    """What an entry says (arXiv 2609.26781, section 2)."""

    OBSERVED = "OBSERVED"
    FACT = "FACT"
    FAIL = "FAIL"
    CLAIM = "CLAIM"
    PATCH_SUMMARY = "PATCH_SUMMARY"


CONTENT_CAP = 100  # Unicode code points
PATCH_SUMMARY_CAP = 300  # Unicode code points
DETAIL_CAP = 64 * 1024  # bytes of UTF-8
NOTICE_ORDER = (
    EntryType.FAIL,
    EntryType.CLAIM,
    EntryType.FACT,
    EntryType.OBSERVED,
    EntryType.PATCH_SUMMARY,
)
"""Which entries come first when a notice cannot carry all."""


def content_cap(type_: EntryType) -> int:
    """Return how many code points the content of such an entry may have."""
    return PATCH_SUMMARY_CAP if type_ is EntryType.PATCH_SUMMARY else CONTENT_CAP


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a board, without its detail."""

    seq: int
    worker: str
    type: EntryType
    content: str
    created_at: float
    """Epoch seconds, millisecond precision."""
    expires_at: float | None = None
    """CLAIM only."""
    has_detail: bool = False
    active: bool = True
    """False once a CLAIM has expired or was released."""

    @property
    def label(self) -> str:
        """How people and agents name it: `G<seq>`."""
        return f"G{self.seq}"

    def to_json(self) -> dict[str, Any]:
        """Return the shape of the board's listing and stream (times in milliseconds since the epoch)."""
        return {
            "seq": self.seq,
            "label": self.label,
            "worker": self.worker,
            "type": str(self.type),
            "content": self.content,
            "created_at": round(self.created_at * 1000),
            "expires_at": None if self.expires_at is None else round(self.expires_at * 1000),
            "has_detail": self.has_detail,
            "active": self.active,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Entry:
        """Read the shape `to_json` writes."""
        expires = value.get("expires_at")
        return cls(
            seq=int(value["seq"]),
            worker=str(value["worker"]),
            type=EntryType(value["type"]),
            content=str(value["content"]),
            created_at=value["created_at"] / 1000,
            expires_at=None if expires is None else expires / 1000,
            has_detail=bool(value.get("has_detail")),
            active=bool(value.get("active", True)),
        )
