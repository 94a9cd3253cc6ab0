"""SIGKILL to the node host while a real CLI is in the middle of a tool, and what its successor makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agensh.harnesses import install
from agensh.rundir import RunDir
from router.leftovers import started
from tests.integration.test_harness_acp import TestCodexAcp as Acp
from tests.integration.test_router_node import rows
from tests.support.harness_stage import LIMIT, LOOK, MODEL_KEY, mentions, processes_of
from tests.support.router_stage import new_run, until
from tests.support.scripted_model import Model, scripted_model

pytestmark = pytest.mark.timeout(300)  # two hosts and two CLIs, one after the other
ROOT = Path(__file__).parents[2]
ME = "demo-worker1"
EARLY, LATE, MESSAGE = 1, 2, 3
LATE_TEXT = (
    'Late. [[bash: until [ -e go ]; do sleep 0.1; done]] [[mcp: board_read {}]] [[mcp: board_read {"limit": 5}]] '
    "[[bash: test -e free || setsid -w tail -f forever >out 2>&1]] [[text: SECOND-ANSWER]]"
)


@dataclass(frozen=True)
class Cli:
    """A CLI under test, and where it keeps what it was told."""

    harness: str
    package: str
    version: str = ""
    transcripts: str = ".none/*"
    """Below the worker's home."""

    def options(self) -> Mapping[str, str]:
        """Install it; return `worker.options`."""
        binary = install(self.package, self.version)
        return Acp().options_for(binary) if self.harness == "acp" else {"binary": str(binary)}


CLIS = (
    Cli("codex", "@openai/codex", transcripts=".codex/sessions/**/*.jsonl"),
    Cli("claude-code", "@anthropic-ai/claude-code", transcripts=".claude/projects/**/*.jsonl"),
    Cli("copilot", "@github/copilot", transcripts=".copilot/session-state/**/*.jsonl"),
    Cli("copilot", "@github/copilot", "1.0.70", transcripts=".copilot/session-state/**/*.jsonl"),
    Cli("acp", Acp.package, transcripts="**/sessions/**/*.jsonl"),
)


class Host:
    """A node host in a process of its own, with the one worker of a run."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hear(self, number: int, text: str, *, direct: bool = False) -> None:
        """Let the worker hear something, and wait until its queue has it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"number": number, "text": text, "direct": direct}).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), LIMIT)
        assert line == f"heard {number}\n".encode()

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._process.wait()

    async def terminate(self) -> int:
        """SIGTERM; return the exit code."""
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), LIMIT)


@asynccontextmanager
async def hosting(run: RunDir) -> AsyncIterator[Host]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli_host", str(run.path), cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Host(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextmanager
def run_of(folder: Path, cli: Cli, model: Model) -> Iterator[RunDir]:
    """Make a run; whatever of it a test that failed leaves running is ended."""
    run = new_run(folder / uuid.uuid4().hex, workers=1, budget="1h", wind_down="1m", last_call="1s", idle="1h")
    info, secrets = run.info(), run.secrets()
    worker = info.spec.worker.model_copy(
        update={"harness": cli.harness, "model": "scripted", "options": dict(cli.options())}
    )
    urls = info.urls.model_copy(update={"gateway": model.url})
    run.write_info(info.model_copy(update={"spec": info.spec.model_copy(update={"worker": worker}), "urls": urls}))
    secrets.workers[ME].gateway_key = MODEL_KEY
    run.write_secrets(secrets)
    try:
        yield run
    finally:
        for pid in processes_of(run.path.name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def states(run: RunDir) -> dict[str, str]:
    """Return the state of everything that the worker heard."""
    found = rows(run, "select dedupe_key, state from events where source != 'control'")
    return {row["dedupe_key"].rpartition(":")[2]: row["state"] for row in found}


@pytest.mark.parametrize("cli", CLIS, ids=lambda cli: f"{cli.harness}{cli.version}")
async def test_a_killed_host_in_mid_tool(cli: Cli, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(scripted_model())
        run = stack.enter_context(run_of(tmp_path, cli, model))
        folder = run.worker(ME)
        work = folder / "work"

        def running(words: str) -> set[int]:
            return {pid for pid, line in processes_of(run.path.name).items() if line.startswith(words)}

        def written(words: str) -> bool:
            return any(words in path.read_text() for path in (folder / "home").glob(cli.transcripts))

        async with hosting(run) as host:
            await host.hear(EARLY, "Early. [[text: FIRST-ANSWER]]")
            await until(lambda: states(run).get("1") == "sent", LIMIT, every=LOOK)
            (work / "forever").touch()
            await host.hear(LATE, LATE_TEXT)
            await until(lambda: bool(running("sleep 0.1")), LIMIT, every=LOOK)
            # Comes with the command by a hook, else with the next call; the call after that proves that it was seen.
            await host.hear(MESSAGE, "notice-alpha", direct=True)
            (work / "go").touch()
            await until(lambda: bool(running("tail -f forever")), LIMIT, every=LOOK)
            await until(lambda: states(run)["3"] == "sent", LIMIT, every=LOOK)
            # Each CLI writes its session in its own time; what it has not written when it is killed is not resumed.
            await until(lambda: written("tail -f forever") and written("notice-alpha"), LIMIT, every=LOOK)
            (session,) = rows(run, "select session_id, number from sessions")
            before = processes_of(run.path.name)
            await host.kill()
        # The CLI ends with its host; a command in a session of its own lives on.
        assert running("tail -f forever")
        (work / "free").touch()
        asked = len(model.requests)
        async with hosting(run) as host:
            # What a listener reads again after a restart.
            await host.hear(EARLY, "Early. [[text: FIRST-ANSWER]]")
            await host.hear(LATE, LATE_TEXT)
            await host.hear(MESSAGE, "notice-alpha", direct=True)
            await until(lambda: states(run) == {"1": "sent", "2": "sent", "3": "sent"}, LIMIT, every=LOOK)
            assert not {pid for pid in before if started(pid)}
            assert await host.terminate() == 0
        await until(lambda: not processes_of(run.path.name), LIMIT, every=LOOK)

        assert model.requests[asked:]
        last = model.turns[-1]
        # The history is there, and the event of the killed turn has come once more; nothing else has.
        seen = {words: mentions(last, words) for words in ("Early.", "Late.", "notice-alpha", "kind=resumed")}
        assert seen == {"Early.": 1, "Late.": 2, "notice-alpha": 1, "kind=resumed": 1}
        assert mentions(last, "FIRST-ANSWER") > 0
        assert mentions(last, "tail -f forever") > 0
        assert rows(run, "select session_id, number from sessions") == [session]
        heard = rows(run, "select dedupe_key, handed_out, attempts from events where source != 'control' order by id")
        assert [(row["handed_out"], row["attempts"]) for row in heard] == [(1, 0), (2, 0), (1, 0)]
        ends = rows(run, "select outcome, reason from turns order by id")
        crashed = [row["reason"] for row in ends if row["outcome"] == "crashed"]
        assert crashed == ["The node host ended during the turn."]
