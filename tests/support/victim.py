"""Work on a database that is killed with SIGKILL before each of its statements, one after the other.

Every scenario runs in a fork, killed before its n-th statement; a second fork takes over without being killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from agensh.urls import sqlite_url

MOST_STATEMENTS = 300


class Log:
    """What a client saw and was promised, written so that a kill cannot take it back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, about: str = "") -> None:
        os.write(self._file, f"{what} {about}\n".encode())


Work = Callable[[str, Log, int], Coroutine[Any, Any, None]]
"""A scenario: the database's URL, its log, and the statement before which it is killed (0: never)."""


def kill_before(engine: AsyncEngine, number: int) -> None:
    """Kill this process before its `number`-th statement, commits counted; 0 never does."""
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine.sync_engine, "before_cursor_execute", step)
    event.listen(engine.sync_engine, "commit", step)


def forked(body: Callable[[], None]) -> int:
    """Run `body` in a child; return how it ended (negative: the signal)."""
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at_each(folder: Path, migrate: Callable[[str], None], work: Work, *, step: int = 1) -> None:
    """Print one JSON line a kill: where it was, how both forks ended, and the log; each leaves `<at>.sqlite3`."""
    template = folder / "template.sqlite3"
    migrate(sqlite_url(template))
    for killed_at in range(1, MOST_STATEMENTS, step):
        database, log_path = folder / f"{killed_at}.sqlite3", folder / f"{killed_at}.log"
        shutil.copy(template, database)
        url = sqlite_url(database)
        first = forked(partial(_scenario, work, url, log_path, killed_at))
        second = forked(partial(_scenario, work, url, log_path, 0))
        log = log_path.read_text(encoding="utf-8").splitlines() if log_path.exists() else []
        sys.stdout.write(json.dumps({"at": killed_at, "first": first, "second": second, "log": log}) + "\n")
        sys.stdout.flush()  # or the next fork carries it away in its copy of the buffer
        if first == 0:
            return


def _scenario(work: Work, url: str, log: Path, killed_at: int) -> None:
    asyncio.run(work(url, Log(log), killed_at))
