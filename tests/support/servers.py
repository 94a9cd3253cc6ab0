"""The embedded forge as a real server for tests: in a thread, or as a process that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from agensh.clock import Clock
from agensh.embedded.forge.app import create_app
from agensh.embedded.forge.settings import ForgeSettings
from agensh.launch.ports import free_port
from agensh.serving import make_server, open_socket

ADMIN = ("root-admin", "admin-password")
QUICK = ForgeSettings(event_source_update_time=0.05, password_rounds=1000)
START = 20.0  # seconds a server may take to answer


@dataclass(frozen=True, slots=True)
class RunningForge:
    """A forge that answers; `admin` and `password` are its site administrator's."""

    url: str
    admin: str
    password: str

    @property
    def auth(self) -> tuple[str, str]:
        return self.admin, self.password

    @property
    def api(self) -> str:
        return f"{self.url}/api/v1"


def wait_for(url: str, alive: threading.Thread | subprocess.Popen[bytes]) -> None:
    """Wait until a health address answers 200; AssertionError when the server ended or takes too long."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        running = alive.is_alive() if isinstance(alive, threading.Thread) else alive.poll() is None
        assert running, "the server ended while it started"
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError(f"{url} did not answer within {START:g} s")


@contextmanager
def running_forge(data: Path, *, settings: ForgeSettings = QUICK, clock: Clock | None = None) -> Iterator[RunningForge]:
    """Run a forge over `data` in a thread; works in tests with and without an event loop of their own."""
    sock = open_socket("127.0.0.1", 0, "forge")
    app = create_app(data, admin=ADMIN, settings=settings, clock=clock)
    server = make_server(app, app.state.forge.events.close)
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]), name="forge")
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        wait_for(f"{url}/api/healthz", thread)
        yield RunningForge(url, *ADMIN)
    finally:
        server.stop()
        thread.join(START)
        sock.close()
        assert not thread.is_alive(), "the forge did not stop"


class ForgeProcess:
    """A forge in a process of its own, on one port and data folder, to be killed and started again."""

    def __init__(self, data: Path, *, log: Path | None = None) -> None:
        """With `log` its log goes there, in the format of our services."""
        self.data = data
        self.log = log
        self.port = free_port()
        self.forge = RunningForge(f"http://127.0.0.1:{self.port}", *ADMIN)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RunningForge:
        """Start and wait until it answers."""
        program = (
            "import sys; from pathlib import Path; from agensh.embedded.forge.server import serve; "
            "from tests.support.servers import ADMIN, QUICK; "
            f"{'from agensh.logs import set_up_logging; set_up_logging(); ' if self.log else ''}"
            "serve(Path(sys.argv[1]), '127.0.0.1', int(sys.argv[2]), ADMIN, QUICK)"
        )
        root = str(Path(__file__).parents[2])
        with ExitStack() as stack:
            log = stack.enter_context(self.log.open("ab")) if self.log else None
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(self.data), str(self.port)],
                cwd=root,
                env={**os.environ, "PYTHONPATH": root},
                start_new_session=True,
                stderr=log,
            )
        wait_for(f"{self.forge.url}/api/healthz", self._process)
        return self.forge

    @property
    def pid(self) -> int:
        """The running server's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, with its git processes, and wait for the end."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> int:
        """SIGTERM; return the exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        return process.wait(START)
