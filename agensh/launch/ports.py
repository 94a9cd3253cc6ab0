"""Free ports on the loopback address that are still free when their services come to listen, seconds later.

The kernel gives ports of a range of its own to outgoing connections and to whoever asks for any port, so these come
from below that range. They come one after another for all processes of a user, so that two launches at once do not
choose the same.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
FIRST, END = 20_000, 30_000
"""Where ports are chosen from; Linux gives out 32,768 and more unless it is told otherwise."""
_DIGITS = 16
_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return that many different free ports; OSError when there are not as many."""
    size = _end() - FIRST
    found: list[int] = []
    with _counter() as counter:
        for _ in range(size):
            if len(found) == count:
                return found
            counter.last = (counter.last + 1) % size
            if _is_free(FIRST + counter.last):
                found.append(FIRST + counter.last)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"of the ports from {FIRST} on, {len(found)} are free, and {count} are wanted")
    return found


def free_port() -> int:
    """Return a free port; OSError when there is none."""
    return free_ports(1)[0]


@dataclass(slots=True)
class _Counter:
    last: int
    """The port that was looked at last, above `FIRST`."""


@contextmanager
def _counter() -> Iterator[_Counter]:
    """Have the counter of this user's processes for oneself; one of our own, at a random place, where there is none."""
    path = Path(tempfile.gettempdir()) / f"agensh-ports-{os.getuid()}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        yield _Counter(secrets.randbelow(END - FIRST))
        return
    with os.fdopen(handle, "r+b", buffering=0) as file:
        about = os.fstat(handle)
        if about.st_uid != os.getuid() or not stat.S_ISREG(about.st_mode):
            yield _Counter(secrets.randbelow(END - FIRST))  # somebody else has put it there
            return
        fcntl.flock(handle, fcntl.LOCK_EX)
        text = file.read(_DIGITS).strip()
        counter = _Counter(int(text) if text.isdigit() else secrets.randbelow(END - FIRST))
        yield counter
        with suppress(OSError):  # a full disk
            file.seek(0)
            file.write(f"{counter.last:<{_DIGITS}}".encode())


def _end() -> int:
    try:
        kernels = int(_KERNELS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return END
    return kernels if FIRST + 1_000 < kernels < END else END


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return False
    return True
