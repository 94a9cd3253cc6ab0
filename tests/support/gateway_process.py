"""A gateway in a process of its own, on one port and data folder, to be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from agensh.launch.ports import free_port
from agensh.urls import sqlite_url
from tests.support.gateway import ADMIN, CREDENTIAL
from tests.support.servers import wait_for

SPEC = """\
[team]
name = "demo"
[task]
kind = "repo"
goal = "goal.md"
acceptance = "true"
[gateway]
api_key_env = "PROVIDER_KEY"
"""


class GatewayProcess:
    """`agensh gateway serve` over one folder."""

    def __init__(self, folder: Path, upstream: str, more: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = sqlite_url(folder / "gateway-data" / "gateway.sqlite3")
        self.log = folder / "gateway.jsonl"
        (folder / "goal.md").write_text("goal")
        (folder / "team.toml").write_text(f'{SPEC}base_url = "{upstream}"\n{more}\n')
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running gateway's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it answers."""
        command = [sys.executable, "-m", "agensh", "gateway", "serve", "team.toml", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "PROVIDER_KEY": CREDENTIAL, "AGENSH_GATEWAY_ADMIN_TOKEN": ADMIN},
                stderr=log,
                start_new_session=True,
            )
        wait_for(f"{self.url}/healthz", self._process)

    def kill(self) -> None:
        """SIGKILL and wait for the end."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        return process.wait(30)
