"""A private MariaDB for tests: its own data folder, socket and port, gone afterwards. Works as root and as a user.

`mariadb_server` is a session fixture; it skips, with the reason, where the server is not installed. With
`AGENSH_TEST_MYSQL=real` it, and `running_mariadb`, is a real MySQL (`tests/support/mysql.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from agensh.launch.ports import free_port

START_SECONDS = 300.0


class MariaDb:
    """A server over its own data folder: started, killed and started again on one port."""

    program = "mariadbd"

    def __init__(self, program: str, folder: Path, options: Sequence[str]) -> None:
        self.port = free_port()
        self.password = ""
        self._folder = folder
        self._command = [
            program,
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            f"--socket={folder / 's'}",
            f"--port={self.port}",
            f"--pid-file={folder / 'pid'}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            *options,
            *_account(),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it answers."""
        self._launch()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.run("SELECT 1")
                return
            except pymysql.err.OperationalError:
                if not self._runs() or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.program} did not start: {self._words()[-2000:]}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def stop(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def run(self, *statements: str, database: str | None = None) -> list[tuple[object, ...]]:
        """Run statements as root and return the rows of the last one."""
        with (
            pymysql.connect(
                host="127.0.0.1",
                port=self.port,
                user="root",
                password=self.password,
                database=database,
                charset="utf8mb4",
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def new_database(self, character_set: str = "utf8mb4", prefix: str = "board_") -> str:
        """Create an empty database and return its SQLAlchemy URL; its name is the prefix and 12 characters."""
        name = f"{prefix}{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} CHARACTER SET {character_set}")
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the SQLAlchemy URL of a database, whether it is there or not."""
        password = f":{self.password}" if self.password else ""
        return f"mysql+aiomysql://root{password}@127.0.0.1:{self.port}/{name}"

    def _launch(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _words(self) -> str:
        return (self._folder / "log").read_text(errors="replace")


def find(*names: str) -> str | None:
    """Return the first of these programs, also from the folders that an ordinary user's PATH leaves out."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@contextmanager
def running_mariadb(*options: str) -> Iterator[MariaDb]:
    """Start a server and stop it at the end of the block; skips the test when it is not installed.

    `options` go after the small ones of tests.
    """
    if os.environ.get("AGENSH_TEST_MYSQL") == "real":
        from tests.support.mysql import running_mysql  # it stands on this module

        with running_mysql(*options) as real:
            yield real
        return
    server = find("mariadbd", "mysqld")
    install = find("mariadb-install-db", "mysql_install_db")
    if server is None or install is None:
        pytest.skip("mariadbd and mariadb-install-db are not installed (Debian package mariadb-server)")
    # Not pytest's folder: the path of a Unix socket ends at 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="agdb-"))
    try:
        with (folder / "log").open("wb") as output:
            made = subprocess.run(
                [
                    install,
                    "--no-defaults",
                    f"--datadir={folder / 'data'}",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                    *_account(),
                ],
                check=False,
                stdout=output,
                stderr=output,
                timeout=120,
            )
        if made.returncode:
            raise RuntimeError(f"{install} failed: {(folder / 'log').read_text(errors='replace')[-2000:]}")
        database = MariaDb(server, folder, options)
        try:
            database.start()
            yield database
        finally:
            database.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """The MariaDB of this test process."""
    with running_mariadb() as database:
        yield database
