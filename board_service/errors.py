"""What the board refuses, as HTTP statuses with sentences. Every error body has one shape: status, reason, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agensh.errors import AgenshError


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a request."""

    code: str
    message: str


class Refusal(AgenshError):
    """The board refuses the request."""

    def __init__(self, status: int, mistakes: Sequence[Mistake], *, retry_after: int | None = None) -> None:
        super().__init__(" ".join(mistake.message for mistake in mistakes))
        self.status = status
        self.mistakes = tuple(mistakes)
        self.retry_after = retry_after

    def body(self) -> dict[str, object]:
        """Return the error body every route answers with."""
        return {
            "status": "rejected" if self.status in {413, 422} else "error",
            "reason": str(self),
            "errors": [{"code": mistake.code, "message": mistake.message} for mistake in self.mistakes],
        }


def refuse(status: int, code: str, message: str, *, retry_after: int | None = None) -> Refusal:
    """Return a refusal with one reason."""
    return Refusal(status, [Mistake(code, message)], retry_after=retry_after)


def overloaded() -> Refusal:
    """Return what a full write queue answers."""
    return refuse(503, "overloaded", "Too many notes wait to be written; send this one again.", retry_after=1)


def storage_unavailable() -> Refusal:
    """Return what a request gets when the database does not answer; never the database's own words."""
    return refuse(
        503, "storage_unavailable", "The board cannot reach its storage; send the request again.", retry_after=2
    )


def disk_full() -> Refusal:
    """Return what a write gets when the storage has no room."""
    return refuse(
        507,
        "disk_full",
        "The board's disk full: nothing was written. Reading goes on; ask the operator to make room.",
        retry_after=30,
    )
