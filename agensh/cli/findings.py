"""What `agensh doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How it stands with one thing."""

    OK = "ok"
    UNSURE = "unsure"
    """It may work; a person should know."""
    NO = "no"
    SKIPPED = "skipped"
    """It was not looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    found: str
    remedy: str = ""
    """What to do, in one line, unless it is well."""

    @classmethod
    def of(cls, what: str, ok: bool, found: str, remedy: str = "") -> Finding:
        """Return a finding that leaves no doubt."""
        return cls(what, Verdict.OK if ok else Verdict.NO, found, remedy)
