"""What is rehearsed: how many workers, how long, and how often each does what."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SETTLE = 3.0  # seconds between the last call of the load and the closing calls: what was posted last is on its way
CLOSING_RATE = 100.0  # closing calls a second, all workers together
DUE = 2.0  # seconds after which work that was due counts as backlog


class Rates(BaseModel):
    """Mean seconds between two of a kind, for one worker; 0 leaves the kind out.

    The defaults are what a team of 8 coding agents was seen to do.
    """

    model_config = ConfigDict(frozen=True)

    call: float = Field(20.0, ge=0)
    """Tool calls of all kinds together; those below count among them."""
    entry: float = Field(160.0, ge=0)
    message: float = Field(75.0, ge=0)
    post: float = Field(600.0, ge=0)
    merge: float = Field(1200.0, ge=0)
    """A pull request opened and merged: two calls."""

    def per_second(self) -> dict[str, float]:
        """Return how often a worker does each kind; `look` is what is left of the calls."""
        rates = {kind: 1 / value if (value := getattr(self, kind)) else 0.0 for kind in _KINDS}
        calls = sum(rates.values()) + rates["merge"]
        rates["look"] = max(0.0, (1 / self.call if self.call else 0.0) - calls)
        return rates


_KINDS = ("entry", "message", "post", "merge")


class Plan(BaseModel):
    """One rehearsal; the load generators read it from the run folder."""

    model_config = ConfigDict(frozen=True)

    workers: int
    seconds: float
    """How long the workers call at their rates."""
    begin: float
    """When they begin (epoch seconds)."""
    generators: int
    """Processes that share the workers, every so many-th each."""
    rates: Rates = Rates()
    spacing: Literal["exponential", "uniform"] = "exponential"
    contacts: int = 8
    """How many others a worker writes direct messages to: those next to it."""
    seed: int = 1

    @property
    def end(self) -> float:
        """When the last call of the load is due."""
        return self.begin + self.seconds

    def closing_at(self, index: int) -> float:
        """Return when worker `index` looks once more at what is left for it."""
        return self.end + SETTLE + index / CLOSING_RATE

    def write(self, folder: Path) -> None:
        """Write it into the run folder."""
        (folder / "rehearsal.json").write_text(self.model_dump_json(indent=2), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Read it from the run folder."""
        return cls.model_validate_json((folder / "rehearsal.json").read_text(encoding="utf-8"))


def log_file(folder: Path, generator: int, again: int = 0) -> Path:
    """What one load generator did and was shown: a JSON array a line, see `agensh.rehearse.log`.

    `again` counts the times that its workers only looked at what was left for them; 0 is the load itself.
    """
    return folder / (f"load-{generator}-again-{again}.jsonl" if again else f"load-{generator}.jsonl")
