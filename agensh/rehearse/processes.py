"""What processes cost, from /proc: processor time with that of ended children, and resident memory."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process and its ended children took so far; 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()  # from the third field on: the name may hold anything
    return sum(map(int, fields[11:15])) / _TICK


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (10^6 bytes); 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
