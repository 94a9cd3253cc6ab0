"""The command line, the environment and the files with which a worker's Claude Code starts.

Everything of the CLI is in the worker's own folders: configuration and sessions below its home, sockets and scratch
files in its temporary folder. No secret stands on the command line: the MCP token is in a file of mode 600, the key of
the model in the environment. The worker's shell sees that environment; the key is the worker's own at the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from adapters.base import WorkerLaunch
from adapters.binary import BINARY, PACKAGES
from adapters.options import Rule, path
from agensh.inside import write_private_inside

SERVER = "agensh"
"""Our MCP server's name: the tools are `mcp__agensh__…` to the model."""
CONFIG = ".config/agensh/claude-mcp.json"
STALL = 180  # seconds without a byte of an answer that has begun, pings included
LONGEST_COMMAND = 3600  # seconds that the model may give a command of its shell; without a word it is 2 min
STALL_BOUNDS = (10, 1800)  # seconds; what the CLI takes
# They let the CLI wake itself; a turn begins with a prompt of ours and with nothing else.
_WAKING = ("CronCreate", "Monitor", "ScheduleWakeup")


def stall(value: str) -> str:
    """The rule of `worker.options.stall_seconds`."""
    least, most = STALL_BOUNDS
    right = value.isascii() and value.isdigit() and least <= int(value) <= most
    return "" if right else f"give a whole number from {least} to {most}"


OPTIONS: Mapping[str, Rule] = {BINARY: path, PACKAGES: path, "stall_seconds": stall}


def write_config(launch: WorkerLaunch) -> Path:
    """Write the file that names our MCP endpoint, or none where the worker has none, and return its path."""
    if not launch.mcp_url:
        return write_private_inside(launch.home, CONFIG, json.dumps({"mcpServers": {}}))
    server = {
        "type": "http",
        "url": launch.mcp_url,
        "headers": {"Authorization": f"Bearer {launch.mcp_token}"},
        # In the list of tools from the first request on, not behind a search.
        "alwaysLoad": True,
    }
    return write_private_inside(launch.home, CONFIG, json.dumps({"mcpServers": {SERVER: server}}))


def command(launch: WorkerLaunch, program: str, config: Path, *, session: str, resume: bool) -> list[str]:
    """Return the command line of a fresh or a resumed session."""
    line = [program, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    line += ["--mcp-config", str(config), "--strict-mcp-config"]
    line += ["--dangerously-skip-permissions", "--disallowedTools", ",".join(_WAKING)]
    if launch.model:
        line += ["--model", launch.model]
    if launch.effort:
        line += ["--effort", launch.effort]
    return [*line, "--resume" if resume else "--session-id", session]


def environment(launch: WorkerLaunch) -> dict[str, str]:
    """Return the whole environment of the CLI."""
    patience = str(int(launch.options.get("stall_seconds", STALL)) * 1000)
    given = {
        **launch.env,
        "HOME": str(launch.home),
        "CLAUDE_CONFIG_DIR": str(launch.home / ".claude"),
        "TMPDIR": str(launch.tmp),
        "CLAUDE_CODE_TMPDIR": str(launch.tmp),
        # As root it refuses to work without asking, unless it is told that somebody has thought of that.
        "IS_SANDBOX": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # The end of a background task would begin a turn that nobody asked for.
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_CRON": "1",
        # So a long build has to be waited for; the CLI's own limit is 10 min.
        "BASH_MAX_TIMEOUT_MS": str(LONGEST_COMMAND * 1000),
        # One repetition bridges a hiccup; whether and when to go on after that is the dispatcher's to say.
        "CLAUDE_CODE_MAX_RETRIES": "1",
        # A stream that broke would be asked for, and paid, once more as a whole.
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": patience,
        "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS": patience,
    }
    if launch.model_url:
        given["ANTHROPIC_BASE_URL"] = launch.model_url
    if launch.model_key:
        given["ANTHROPIC_API_KEY"] = launch.model_key
    if launch.model:
        # Subagents and questions aside go to the same model: a gateway may allow no other.
        for name in ("HAIKU", "SONNET", "OPUS"):
            given[f"ANTHROPIC_DEFAULT_{name}_MODEL"] = launch.model
        given["CLAUDE_CODE_SUBAGENT_MODEL"] = launch.model
    if launch.max_output_tokens:
        given["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(launch.max_output_tokens)
    if launch.max_prompt_tokens:
        # The first bounds what is kept before it is summed up, the second the window of a model it does not know.
        given["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(launch.max_prompt_tokens)
        given["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(launch.max_prompt_tokens)
    return given
