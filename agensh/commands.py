"""Helper commands such as git: bounded, and ended with all they start."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    output: bytes
    errors: bytes


async def run_command(
    command: Sequence[str], *, seconds: float, env: Mapping[str, str], cwd: Path | None = None, given: bytes = b""
) -> Ended:
    """Run a command to its end; `given` is what it reads. TimeoutError after `seconds`.

    Whatever it started is killed with it when it takes too long or its caller is cancelled: git leaves the transfer to
    a child, and a wait for the output of one that hangs has no end.
    """
    # Cancelled in the midst of the start, asyncio would kill the command alone and wait for its children.
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        async with asyncio.timeout(seconds):
            process = await asyncio.shield(starting)
            output, errors = await process.communicate(given or None)
    except BaseException:
        await _end(starting)
        raise
    return Ended(process.returncode or 0, output, errors)


async def _end(starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    await asyncio.wait([starting])
    if starting.exception() is None:
        process = starting.result()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
