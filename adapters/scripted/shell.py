"""Commands of the worker's shell: run, bounded, reported with the end of their output."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import signal
import tempfile
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


class Shell:
    """Runs commands one at a time; cancelling one kills it and all it started."""

    def __init__(self, report: Callable[[ToolActivity], None]) -> None:
        self._report = report
        self._ids = itertools.count(1)

    async def build(self, command: Sequence[str], cwd: Path, *, timeout: float = 300.0) -> Done:
        """Run a build or a check as the grader does: with nothing of this machine's environment."""
        return await self.run(command, cwd, timeout=timeout, env=STERILE_ENV)

    async def run(
        self, command: Sequence[str], cwd: Path, *, timeout: float = 120.0, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command; code 124 when it took longer than `timeout` seconds."""
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

    def note(self, command: str, output: str, *, ok: bool) -> None:
        """Report something the shell did."""
        summary = f"$ {command}\n{output.strip()[-_TAIL:]}"
        self._report(ToolActivity(f"sh{next(self._ids)}", "shell", "shell", summary, ok=ok))


def _environment() -> dict[str, str]:
    # What runs here is the team's code as well: it gets no token of ours.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENSH_")}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
