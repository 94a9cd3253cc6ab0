"""CLIs that close their output and go on living: nobody waits for them for ever."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from adapters import base
from adapters.base import Adapter, HarnessUnavailable, WorkerLaunch
from adapters.claude_code.adapter import ClaudeCodeAdapter
from adapters.codex.adapter import CodexAdapter
from adapters.runtime import LocalRuntime
from agensh.clock import SystemClock

LIMIT = 60.0  # seconds
SILENT = "#!/bin/sh\necho $$ >{pid}\nexec >&-\nexec sleep 100000\n"


@pytest.mark.parametrize("harness", [CodexAdapter, ClaudeCodeAdapter])
async def test_a_cli_that_says_no_more_and_lives_on_cannot_be_started(
    harness: type[Adapter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "LINGER", 0.2)
    binary, pid = tmp_path / "cli", tmp_path / "pid"
    binary.write_text(SILENT.format(pid=pid))
    binary.chmod(0o755)
    home, work, tmp = (tmp_path / name for name in ("home", "work", "tmp"))
    for folder in (home, work, tmp):
        folder.mkdir()
    launch = WorkerLaunch(
        "w1",
        home,
        work,
        tmp,
        tmp_path / "cli.log",
        "http://127.0.0.1:1/mcp/w1",
        "token",
        options={"binary": str(binary)},
        env={"PATH": os.environ["PATH"]},
    )
    adapter = harness(launch, LocalRuntime(), SystemClock())
    try:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(HarnessUnavailable, match="ended"):
                await adapter.start()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
    finally:
        await adapter.stop()
