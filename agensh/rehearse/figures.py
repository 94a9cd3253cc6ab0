"""The figures of a rehearsal, as `--json` returns them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from agensh.rehearse.counting import Quantiles


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rehearsal measured; docs/rehearse.md says what each means."""

    workers: int
    hosts: int
    seconds: float
    database: str
    calls: int
    calls_failed: int
    entries: int
    direct_messages: int
    posts: int
    """Of the task channel."""
    posts_told: int
    """Pairs of post and worker in which a prompt told of it; the newest posts wait for the next turn."""
    merged: int
    lost: int
    under_way: int
    """Neither lost nor seen with the closing calls: seen when the workers looked again, up to a minute later."""
    repeated: int
    entry_shown_delay_s: Quantiles
    entry_announced_delay_s: Quantiles
    dm_shown_delay_s: Quantiles
    excess_delay_ms: Quantiles
    """Of direct messages and announced entries together."""
    entry_excess_ms: Quantiles
    dm_excess_ms: Quantiles
    shown_share: float
    """Of all pairs of entry and worker: those in which the text was shown; in the others it was counted only."""
    call_ms: Quantiles
    late_ms: Quantiles
    """How much later than due a call began."""
    queued_delay_s: Quantiles
    """From the chat's time of a post to its row in a worker's queue."""
    backlog_end: int
    backlog: dict[str, int]
    """What `backlog_end` consists of."""
    unwritten_end: int
    """Records of the routers that waited for their commit when the load ended."""
    router_mb: float
    empty_host_mb: float
    cpu_s: dict[str, float]
    """By process, while the workers were calling; `total` is the sum."""
    provision_s: float
    load_average: float
    """Of the machine, over the last minute, at the end."""
    failures: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing was lost, nothing repeated, and nothing left undone."""
        return not (self.lost or self.under_way or self.repeated or self.backlog_end)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)
