"""Become another program that dies with the process that started this one.

    python -I -S parent_death.py PARENT_PID COMMAND [ARGUMENT]...

PR_SET_PDEATHSIG has to be set in the child, between fork and exec. A `preexec_fn` would run Python code in a fork of a
threaded process, which can deadlock, and makes every start copy the whole parent; `setpriv --pdeathsig` is missing from
some systems. So the child is this file in a bare interpreter, which then becomes the command: same process id, same
descriptors. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Set the signal and become `argv[1:]`; returns a shell's 126 or 127 when that is impossible."""
    parent, command = int(argv[0]), argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the call above; then no signal will ever come.
    if os.getppid() != parent:
        return 1
    # What this interpreter was given, not os.environ: Python may have added LC_CTYPE to that.
    with open("/proc/self/environ", "rb") as given:  # noqa: PTH123 (pathlib costs more than the rest of this file)
        pairs = (entry.partition(b"=") for entry in given.read().split(b"\0") if entry)
        environment = {name: value for name, _, value in pairs}
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
