"""The worker's hands on its machine: commands, bounded, and files. Reported with the end of their output."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adapters.base import ToolActivity
from agensh.trial import STERILE_ENV

_TAIL = 1500  # characters of output in the report
_OUTPUT_CAP = 1 << 20  # bytes kept of a command's output


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    output: str
    """Standard output and error together."""

    @property
    def ok(self) -> bool:
        return self.code == 0


class Shell(ABC):
    """Runs commands one at a time, and reads and writes files, wherever the worker works."""

    async def build(self, command: Sequence[str], cwd: Path, *, timeout: float = 300.0) -> Done:
        """Run a build or a check as the grader does: with nothing of this machine's environment."""
        return await self.run(command, cwd, timeout=timeout, env=STERILE_ENV)

    @abstractmethod
    async def run(
        self, command: Sequence[str], cwd: Path, *, timeout: float = 120.0, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command; code 124 when it took longer than `timeout` seconds."""

    async def run_all(self, *commands: Sequence[str], cwd: Path, timeout: float = 120.0) -> Done:
        """Run commands until one fails; the code is the last one's, the output that of all."""
        output = ""
        for command in commands:
            done = await self.run(command, cwd, timeout=timeout)
            output += done.output
            if not done.ok:
                break
        return Done(done.code, output)

    @abstractmethod
    async def read(self, path: Path) -> str | None:
        """Return a file's text, None when there is no such file."""

    @abstractmethod
    async def write(self, root: Path, files: Mapping[str, str]) -> None:
        """Write files below `root`; one that begins with `#!` becomes executable."""

    @abstractmethod
    async def exists(self, path: Path) -> bool:
        """Say whether there is a file or a folder."""

    @abstractmethod
    async def remove(self, path: Path) -> None:
        """Remove a folder with all in it; one that is not there is fine."""

    @abstractmethod
    def note(self, command: str, output: str, *, ok: bool) -> None:
        """Report something that was done without a command."""


class LocalShell(Shell):
    """Works on this machine; cancelling a command kills it and all it started."""

    def __init__(self, report: Callable[[ToolActivity], None]) -> None:
        self._report = report
        self._ids = itertools.count(1)

    async def run(
        self, command: Sequence[str], cwd: Path, *, timeout: float = 120.0, env: Mapping[str, str] | None = None
    ) -> Done:
        """See Shell.run."""
        # A file, not a pipe: what a command leaves running in the background cannot hold up its end.
        with tempfile.TemporaryFile() as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=cwd,
                env=_environment() if env is None else env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = await asyncio.wait_for(process.wait(), timeout)
            except TimeoutError:
                code = 124
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _OUTPUT_CAP))
            text = output.read().decode("utf-8", "replace")
        self.note(shlex.join(command), text, ok=code == 0)
        return Done(code, text)

    async def read(self, path: Path) -> str | None:
        """See Shell.read."""
        return _read(path)

    async def write(self, root: Path, files: Mapping[str, str]) -> None:
        """See Shell.write."""
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if text.startswith("#!") else 0o644)

    async def exists(self, path: Path) -> bool:
        """See Shell.exists."""
        return _there(path)

    async def remove(self, path: Path) -> None:
        """See Shell.remove."""
        shutil.rmtree(path, ignore_errors=True)

    def note(self, command: str, output: str, *, ok: bool) -> None:
        """See Shell.note."""
        summary = f"$ {command}\n{output.strip()[-_TAIL:]}"
        self._report(ToolActivity(f"sh{next(self._ids)}", "shell", "shell", summary, ok=ok))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _there(path: Path) -> bool:
    return path.exists()


def _environment() -> dict[str, str]:
    # What runs here is the team's code as well: it gets no token of ours.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
