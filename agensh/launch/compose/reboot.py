"""Whether the box was started anew since a run began, and what the run's spec says of that."""

from __future__ import annotations

from pathlib import Path

from agensh.identity import write_private
from agensh.rundir import RunDir, RunInfo

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's own name of its start (random(4)); containers see that of their box."""
BOOT_FILE = "boot_id"
"""File of a run folder that holds the boot id of the node host's first start."""


def boot_id() -> str:
    """Return the id of the box's present boot."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def must_abort(run: RunDir, info: RunInfo, boot: str) -> bool:
    """Keep the boot id of the run's first start; say whether `boot` is another one that ends the run.

    That is so with `container.on_reboot = "abort"`; with "resume" the run goes on, on the same clock.
    """
    file = run.path / BOOT_FILE
    if not file.exists():
        write_private(file, boot + "\n")
        return False
    return info.spec.container.on_reboot == "abort" and file.read_text(encoding="ascii").strip() != boot
