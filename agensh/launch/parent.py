"""A child that ends with its parent, however the parent ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, sign: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to send `sign` to this process when process `parent` ends (Linux; elsewhere nothing happens).

    `parent` closes the race: a parent that is gone already ends this process at once.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        raise SystemExit(1)
