"""What a node host that was killed left running, ended by its successor.

A CLI that outlives its host would go on working with nobody listening, and a second one would start beside it. Ours is
only what carries this run and one of our workers in its environment, or the leader of a process group whose number,
start time and boot we recorded: a number that was used again belongs to somebody else.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection
from pathlib import Path

log = logging.getLogger(__name__)


def started(pid: int) -> str | None:
    """Return boot and start time of a process, which name it for ever; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain anything
    return None if fields[0] == "Z" else f"{boot}/{fields[19]}"


def end_leftovers(run_id: str, workers: Collection[str], recorded: Collection[tuple[int, str]]) -> int:
    """Kill what a former host of this run left of `workers`; return how many processes that were."""
    found = {pid for pid, start in recorded if started(pid) == start}
    found |= _ours(run_id, frozenset(workers))
    found -= {os.getpid(), os.getppid()}
    for pid in found:
        log.warning("process of a former node host is ended", extra={"pid": pid})
        try:
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            log.error("process cannot be ended", extra={"pid": pid, "error": str(error)})
    return len(found)


def _ours(run_id: str, workers: frozenset[str]) -> set[int]:
    wanted = {f"AGENSH_WORKER={worker}".encode() for worker in workers}
    mark = f"AGENSH_RUN={run_id}".encode()
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or somebody else's
            continue
        if mark in variables and not wanted.isdisjoint(variables):
            found.add(int(folder.name))
    return found
