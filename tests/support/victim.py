"""Work on a database that is killed with SIGKILL before each of its statements, one after the other.

Every scenario runs in a fork, killed before its n-th statement; a second fork takes over without being killed. On MySQL
it is also killed right after a statement, or a COMMIT, was sent, when nobody hears the answer.
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

import aiomysql
import pymysql
from sqlalchemy import event, make_url
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
    """Kill this process before its `number`-th statement, commits counted (MySQL: or after it); 0 never does."""
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "before_cursor_execute", step)
        event.listen(engine.sync_engine, "commit", step)
    else:
        _step_at_each_message(step)


def _step_at_each_message(step: Callable[[], None]) -> None:
    """Below SQLAlchemy: the board talks to the driver itself, and several statements may go in one message."""
    send = aiomysql.Connection._execute_command

    async def sent(connection: Any, command: int, text: str | bytes) -> None:
        told = text if isinstance(text, bytes) else text.encode()
        counts = not told.startswith(b"SET ")  # of the login
        if counts:
            step()
        await send(connection, command, text)
        if counts:
            step()

    aiomysql.Connection._execute_command = sent  # type: ignore[method-assign]


def forked(body: Callable[[], None]) -> int:
    """Run `body` in a child; return how it ended (negative: the signal)."""
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at_each(
    folder: Path, migrate: Callable[[str], None], work: Work, *, step: int = 1, template: str = ""
) -> None:
    """Print one JSON line a kill: where it was, how both forks ended, and the log.

    Each leaves `<at>.sqlite3`; with the URL of an empty MySQL database as `template` a database `<its name>_<at>`.
    """
    copied = _copies_of_database(template, migrate) if template else _copies_of_file(folder, migrate)
    for killed_at in range(1, MOST_STATEMENTS, step):
        url, log_path = copied(killed_at), folder / f"{killed_at}.log"
        first = forked(partial(_scenario, work, url, log_path, killed_at))
        second = forked(partial(_scenario, work, url, log_path, 0))
        log = log_path.read_text(encoding="utf-8").splitlines() if log_path.exists() else []
        sys.stdout.write(json.dumps({"at": killed_at, "first": first, "second": second, "log": log}) + "\n")
        sys.stdout.flush()  # or the next fork carries it away in its copy of the buffer
        if first == 0:
            return


def _copies_of_file(folder: Path, migrate: Callable[[str], None]) -> Callable[[int], str]:
    template = folder / "template.sqlite3"
    migrate(sqlite_url(template))

    def copied(number: int) -> str:
        database = folder / f"{number}.sqlite3"
        shutil.copy(template, database)
        return sqlite_url(database)

    return copied


def _copies_of_database(template: str, migrate: Callable[[str], None]) -> Callable[[int], str]:
    migrate(template)
    url = make_url(template)

    def copied(number: int) -> str:
        name = f"{url.database}_{number}"
        with pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, password=url.password or "", autocommit=True
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            cursor.execute(f"SHOW TABLES FROM {url.database}")
            for (table,) in cursor.fetchall():
                cursor.execute(f"CREATE TABLE {name}.{table} LIKE {url.database}.{table}")
                cursor.execute(f"INSERT INTO {name}.{table} SELECT * FROM {url.database}.{table}")
        return url.set(database=name).render_as_string(hide_password=False)

    return copied


def _scenario(work: Work, url: str, log: Path, killed_at: int) -> None:
    asyncio.run(work(url, Log(log), killed_at))
