"""`agensh board serve` as a process, to be stopped or killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from agensh.clients.board import BoardClient
from agensh.errors import ServiceError

COMMAND = [sys.executable, "-c", "from agensh.cli.board import app; app()"]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")} | more


class Served:
    """A running `serve` process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        deadline = time.monotonic() + 60
        while not (found := re.search(r"^board: (http://\S+)$", "".join(self.lines), re.MULTILINE)):
            assert process.poll() is None, "".join(self.lines)
            assert time.monotonic() < deadline, "it did not start"
            time.sleep(0.01)
        self.url = found[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def end(self, number: int) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@contextmanager
def served(*arguments: str, **environment_: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments], stderr=subprocess.PIPE, text=True, env=environment(**environment_)
    )
    running = None
    try:
        running = Served(process)
        yield running
    finally:
        if process.poll() is None:
            if running is None:
                process.kill()
                process.wait(10)
            else:
                running.end(signal.SIGKILL)


def make_token(name: str, *arguments: str) -> str:
    made = subprocess.run(
        [*COMMAND, "token", name, *arguments], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


async def write_each(client: BoardClient, names: Iterable[str], acknowledged: dict[str, int]) -> None:
    """Write a FACT a name, again and again until it is acknowledged; `acknowledged` takes the seqs."""
    for name in names:
        while name not in acknowledged:
            try:
                acknowledged[name] = (await client.write("FACT", name, key=name)).seq
            except ServiceError as error:
                if not error.retryable:
                    raise
