"""Counters of the service in the Prometheus text format."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from agensh.entries import EntryType

BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds


class Metrics:
    """What this process counted since it started."""

    def __init__(self) -> None:
        self.entries: Counter[EntryType] = Counter()
        self.repeated = 0
        self.rejections: Counter[str] = Counter()
        self.pending_calls = 0
        self.streams_cut = 0
        self._latency = [0] * (len(BUCKETS) + 1)
        self._latency_sum = 0.0

    def wrote(self, type_: EntryType, seconds: float, *, repeated: bool) -> None:
        """Count an answered note."""
        if repeated:
            self.repeated += 1
        else:
            self.entries[type_] += 1
        self._latency[sum(seconds > bound for bound in BUCKETS)] += 1
        self._latency_sum += seconds

    def text(self, subscribers: int) -> str:
        """Return everything as Prometheus reads it."""
        lines = _head("entries_total", "counter", "Entries written, by type.")
        lines += [f'agensh_board_entries_total{{type="{type_}"}} {self.entries[type_]}' for type_ in EntryType]
        lines += _plain("repeated_notes_total", "counter", "Notes answered from their key.", self.repeated)
        lines += _head("rejections_total", "counter", "Refused requests, by reason.")
        lines += [
            f'agensh_board_rejections_total{{code="{code}"}} {count}' for code, count in sorted(self.rejections.items())
        ]
        lines += _head("write_seconds", "histogram", "From a note's arrival at the writer to its commit.")
        counts = list(accumulate(self._latency))
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        lines += [
            f'agensh_board_write_seconds_bucket{{le="{bound}"}} {count}'
            for bound, count in zip(bounds, counts, strict=True)
        ]
        lines += [f"agensh_board_write_seconds_sum {self._latency_sum:.6f}"]
        lines += [f"agensh_board_write_seconds_count {counts[-1]}"]
        lines += _plain("stream_subscribers", "gauge", "Open streams.", subscribers)
        lines += _plain("streams_cut_total", "counter", "Streams cut because they were too slow.", self.streams_cut)
        lines += _plain("pending_calls_total", "counter", "Answers to /pending.", self.pending_calls)
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP agensh_board_{name} {text}", f"# TYPE agensh_board_{name} {kind}"]


def _plain(name: str, kind: str, text: str, value: int) -> list[str]:
    return [*_head(name, kind, text), f"agensh_board_{name} {value}"]
