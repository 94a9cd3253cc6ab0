"""One line when something fails, one when it works again, however many calls meet it meanwhile.

A database that is away fails every request, every worker and every look of a background task; whoever reads the log
wants to know once what happened, and once when it was over.
"""

from __future__ import annotations

import errno
import logging
import sqlite3

from agensh.clock import Clock

FORGET = 60.0  # seconds without a failure after which the next one of the same outage is told again
QUIET = (
    10.0  # seconds after a failure in which another outage is not told: a full disk takes what is small, now and then
)

_NO_ROOM_SQLITE = {
    sqlite3.SQLITE_FULL,
    # No room by a quota or a limit of file sizes comes as these.
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def no_room(error: BaseException) -> bool:
    """Say whether an error of SQLite or of the system means that the disk takes no more: full, or a quota used up."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _NO_ROOM_SQLITE
    return isinstance(error, OSError) and error.errno in NO_ROOM


class Outage:
    """What one thing that others depend on went through."""

    def __init__(self, log: logging.Logger, clock: Clock, over: str) -> None:
        """`over` is the line that ends an outage, e.g. `the database works again`."""
        self._log = log
        self._clock = clock
        self._over = over
        self._line = ""
        self._failing: set[str] = set()
        self._failures = 0
        self._told = False
        self._since = 0.0
        self._last = 0.0

    def failed(self, line: str, error: BaseException | str, *, at: str = "") -> None:
        """Something failed: log `line` with the error, unless it was the last thing said.

        `at` names what failed (reading, writing): the outage is over when all of these work again.
        """
        now = self._clock.monotonic()
        quiet = QUIET if not self._failing else FORGET
        if now - self._last > quiet:
            self._line = ""
        if not self._failing:
            self._since, self._failures, self._told = now, 0, False
        if line != self._line:
            self._line, self._told = line, True
            self._log.error(line, extra={"error": _words(error)})
        self._failing.add(at)
        self._failures += 1
        self._last = now

    def worked(self, at: str = "") -> None:
        """Something worked; the line is logged when nothing else is known to fail any more."""
        if not self._failing:
            return
        self._failing.discard(at)
        if not self._failing and self._told:
            seconds = round(self._clock.monotonic() - self._since, 1)
            self._log.warning(self._over, extra={"after_seconds": seconds, "failures": self._failures})


def _words(error: BaseException | str) -> str:
    """The first line: the database toolkit adds the statement and an address of its documentation."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
