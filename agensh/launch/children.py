"""The child processes of a local run: started in their own sessions, waited for until they answer, ended together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import httpx

from agensh.clock import Clock
from agensh.errors import AgenshError
from agensh.rundir import RunDir

READY_TIMEOUT = 60.0  # seconds a service may take to answer for the first time
STOP_GRACE = 20.0  # seconds between SIGTERM and SIGKILL


class ServiceFailed(AgenshError):
    """A service of the run did not start."""


class Child:
    """One service process of a run."""

    def __init__(self, name: str, run: RunDir, health_url: str, clock: Clock, *, without: Collection[str] = ()) -> None:
        """`without` names variables of this process's environment that the service does not inherit."""
        self.name = name
        self.log = run.logs / f"{name}.jsonl"
        self._run = run
        self._health_url = health_url
        self._clock = clock
        self._without = frozenset(without)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the process; `ready` waits for it."""
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "agensh.launch.service",
                self.name,
                str(self._run.path),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name not in self._without},
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until it answers its health check; ServiceFailed with its last words when it ends before."""
        assert self._process is not None
        deadline = self._clock.monotonic() + READY_TIMEOUT
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            while True:
                if self._process.returncode is not None:
                    raise ServiceFailed(f"The {self.name} did not start: {last_words(self.log)} (log: {self.log})")
                with suppress(httpx.TransportError):
                    if (await http.get(self._health_url)).status_code == 200:
                        return
                if self._clock.monotonic() > deadline:
                    raise ServiceFailed(
                        f"The {self.name} did not answer at {self._health_url} in {READY_TIMEOUT:g} s (log: {self.log})"
                    )
                await self._clock.sleep(0.05)

    async def wait(self) -> int:
        """Wait for its end and return the exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL to its whole session's group after a grace."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def last_words(log: Path, limit: int = 300) -> str:
    """Return the last line of a log, cut to a readable length."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1][-limit:] if lines else "it left no word"


async def start_all(children: list[Child], say: Callable[[str], None]) -> None:
    """Start services side by side and wait until each answers; all are ended again when one fails."""
    try:
        for child in children:
            await child.start()
        say(f"waiting for {', '.join(child.name for child in children)}")
        await asyncio.gather(*(child.ready() for child in children))
    except BaseException:
        await stop_all(children)
        raise


async def stop_all(children: list[Child]) -> None:
    """End services side by side."""
    await asyncio.gather(*(child.stop() for child in children))
