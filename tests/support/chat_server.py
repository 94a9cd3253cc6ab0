"""A running chat for tests: the real server in a process of its own, or the one that the environment names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from agensh.launch.ports import free_port

ADMIN, PASSWORD = "admin", "correct-horse-1"
START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
_CODE = """
import json, sys
from pathlib import Path
from urllib.parse import urlsplit
from agensh.embedded.chat.server import serve
from agensh.embedded.chat.settings import ChatSettings
from agensh.logs import set_up_logging
set_up_logging()
data, port, admin, password, settings = sys.argv[1:]
serve(Path(data), "127.0.0.1", int(port), (admin, password), ChatSettings(**json.loads(settings)))
"""


@dataclass
class RunningChat:
    """Where a chat is and who may administer it."""

    url: str
    admin: str
    password: str
    data: Path | None = None
    """Folder of the embedded chat; None for a server of somebody else."""
    settings: dict[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    log_file: Path | None = None
    """Where its log goes; beside the data by default."""

    @property
    def port(self) -> int:
        """The port it listens on."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def log_path(self) -> Path:
        """Where the process writes its log."""
        assert self.data is not None
        return self.log_file or self.data.with_suffix(".log")

    def log(self) -> str:
        """Return what the process logged."""
        return self.log_path.read_text(encoding="utf-8")

    def start(self) -> None:
        """Start the process and wait until it answers."""
        assert self.data is not None
        arguments = [str(self.data), str(self.port), self.admin, self.password]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", _CODE, *arguments, json.dumps(self.settings)],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        end = time.monotonic() + START_TIMEOUT
        with httpx.Client() as client:
            while True:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the chat ended with {self.process.returncode} at its start: {self.log()}")
                try:
                    if client.get(f"{self.url}/api/v4/system/ping").status_code == 200:
                        return
                except httpx.TransportError:
                    if time.monotonic() > end:
                        self.kill()
                        raise
                time.sleep(0.02)

    def stop(self) -> int:
        """Stop it as a service manager would; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it without warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def running_chat(folder: Path, *, log: Path | None = None, **settings: object) -> Iterator[RunningChat]:
    """Yield a running chat whose data is in `folder`; `settings` are fields of `ChatSettings`.

    With AGENSH_MATTERMOST_URL set (and AGENSH_MATTERMOST_ADMIN, AGENSH_MATTERMOST_PASSWORD) it is that server instead.
    """
    url = os.environ.get("AGENSH_MATTERMOST_URL")
    if url and not settings:
        yield RunningChat(
            url.rstrip("/"), os.environ["AGENSH_MATTERMOST_ADMIN"], os.environ["AGENSH_MATTERMOST_PASSWORD"]
        )
        return
    url = f"http://127.0.0.1:{free_port()}"
    chat = RunningChat(url, ADMIN, PASSWORD, folder / "chat", dict(settings), log_file=log)
    chat.start()
    try:
        yield chat
    finally:
        chat.stop()
