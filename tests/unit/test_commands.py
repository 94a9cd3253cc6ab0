"""Helper commands end in time, with all they started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agensh.commands import run_command
from agensh.provision import seed
from agensh.runs import collect
from router.leftovers import started
from tests.support.router_stage import until

PATH = os.environ["PATH"]
HANGS = """#!/bin/sh
# As git does with a transfer: a child that keeps the output open, and a parent that waits for it.
sleep 600 &
echo $! >"$HANGING.new" && mv "$HANGING.new" "$HANGING"
wait
"""


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a git that hangs in front of the real one; return the file that holds its child's number."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/git"
    program.write_text(HANGS.replace("$HANGING", str(tmp_path / "child")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{PATH}")
    return tmp_path / "child"


def child_of(hanging: Path) -> int | None:
    """Return the hanging git's child, None when the time was over before it could be started; forget it."""
    try:
        return int(hanging.read_text())
    except FileNotFoundError:
        return None
    finally:
        hanging.unlink(missing_ok=True)


async def gone(hanging: Path) -> None:
    child = child_of(hanging)
    if child is not None:
        await until(lambda: started(child) is None, 60)


async def test_a_command_says_how_it_ended() -> None:
    found = await run_command(
        ["sh", "-c", "cat; echo wrong >&2; exit 3"], seconds=60, env={"PATH": PATH}, given=b"given"
    )
    assert found == (3, b"given", b"wrong\n")
    assert await run_command(["sh", "-c", "cat; kill -9 $$"], seconds=60, env={"PATH": PATH}) == (-9, b"", b"")


async def test_a_git_that_hangs_in_a_child_is_ended_with_it(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "GIT_TIMEOUT", 1.0)
    monkeypatch.setattr(seed, "TIMEOUT", 1.0)
    async with asyncio.timeout(60):  # the child has ten minutes
        with pytest.raises(collect.GitFailed, match=r"^git fetch did not end within 1 s\.$"):
            await collect.git("fetch", "--quiet", "http://forge.invalid/a.git")
        await gone(hanging)
        with pytest.raises(seed.SeedFailed, match=r"^git push did not end within 1 s\.$"):
            await seed._Git(hanging.parent, 0.0).run("push")
        await gone(hanging)


@pytest.mark.parametrize("early", [False, True])
async def test_a_cancelled_command_is_ended_with_its_children(
    hanging: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    start = asyncio.create_subprocess_exec

    async def held(*command: str, **options: Any) -> asyncio.subprocess.Process:
        """Start it and be cancelled before its start is told."""
        process = await start(*command, **options)
        await until(hanging.exists, 60)
        running.cancel()
        await asyncio.sleep(0)
        return process

    if early:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", held)
    running = asyncio.create_task(collect.git("fetch"))
    if not early:
        await until(hanging.exists, 60)
        running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running
        await gone(hanging)
