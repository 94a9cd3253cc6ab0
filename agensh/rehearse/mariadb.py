"""A private MariaDB for a rehearsal: its own data folder, socket and port, gone afterwards.

Durable as a server in earnest is (`innodb_flush_log_at_trx_commit=1`), so that the figures hold there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from adapters import parent_death
from agensh.clock import Clock
from agensh.commands import run_command
from agensh.errors import AgenshError
from agensh.launch.ports import HOST, free_ports

INSTALL_SECONDS = 120.0
START_SECONDS = 60.0
STOP_SECONDS = 60.0
CONNECTIONS = 400  # a pool of 8 for each process of the run, and room


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A running server."""

    port: int
    pid: int

    def url(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return f"mysql+aiomysql://root@{HOST}:{self.port}/{database}"


def search_path() -> str:
    """Return where programs are looked for: PATH, and the folders that an ordinary user's PATH leaves out."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def _find(path: str, *names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@asynccontextmanager
async def private_mariadb(
    clock: Clock, databases: tuple[str, ...], *, path: str | None = None
) -> AsyncIterator[PrivateServer]:
    """Start a server with these empty databases, and end it with the block; `path` as `search_path` by default.

    AgenshError when it is not installed or does not start.
    """
    path = search_path() if path is None else path
    server, install = _find(path, "mariadbd", "mysqld"), _find(path, "mariadb-install-db", "mysql_install_db")
    if server is None or install is None:
        missing = "mariadbd" if server is None else "mariadb-install-db"
        raise AgenshError(
            f"{missing} is not installed (Debian: mariadb-server). Install it, name a server of your own with "
            "--db URL, or rehearse on SQLite with --sqlite."
        )
    # Not below the run: the path of a Unix socket ends at 107 bytes.
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="agensh-db-"))
    try:
        await _install(install, folder)
        [port] = free_ports(1)
        process = await _start(server, folder, port)
        try:
            found = PrivateServer(port, process.pid)
            await _create(found, databases, process, folder, clock)
            yield found
        finally:
            await asyncio.shield(_stop(process))
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _account() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


async def _install(program: str, folder: Path) -> None:
    command = [
        program,
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        *_account(),
    ]
    try:
        code, output, errors = await run_command(command, seconds=INSTALL_SECONDS, env=os.environ)
    except TimeoutError:
        raise AgenshError(f"mariadb-install-db did not end within {INSTALL_SECONDS:g} s.") from None
    if code:
        raise AgenshError(f"mariadb-install-db failed: {(output + errors).decode(errors='replace').strip()[-300:]}")


async def _start(program: str, folder: Path, port: int) -> asyncio.subprocess.Process:
    command = [
        program,
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        f"--socket={folder / 's'}",
        f"--port={port}",
        f"--pid-file={folder / 'pid'}",
        f"--bind-address={HOST}",
        "--skip-name-resolve",
        "--skip-log-bin",
        f"--max-connections={CONNECTIONS}",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-buffer-pool-size=128M",
        "--innodb-log-file-size=96M",
        *_account(),
    ]
    with (folder / "log").open("wb") as log:
        # It ends with this process, however that ends.
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), *command, stdout=log, stderr=log
        )


async def _create(
    server: PrivateServer, databases: tuple[str, ...], process: asyncio.subprocess.Process, folder: Path, clock: Clock
) -> None:
    engine = create_async_engine(f"mysql+aiomysql://root@{HOST}:{server.port}", poolclass=NullPool)
    deadline = clock.monotonic() + START_SECONDS
    try:
        while True:
            try:
                async with engine.begin() as connection:
                    for name in databases:
                        await connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4"))
                return
            except OperationalError as error:
                if process.returncode is not None or clock.monotonic() > deadline:
                    words = (folder / "log").read_text(encoding="utf-8", errors="replace").strip()[-300:]
                    raise AgenshError(f"mariadbd did not start: {words}") from error
            await clock.sleep(0.1)
    finally:
        await engine.dispose()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
