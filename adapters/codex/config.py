"""The configuration of a worker's Codex: `config.toml` and `hooks.json` in its CODEX_HOME."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.base import WorkerLaunch
from adapters.hook_file import HOOK_SECONDS, hook_command
from agensh.inside import write_private_inside

SERVER = "agensh"  # the name of our MCP endpoint, which its tools carry
PROVIDER = "agensh"
KEY_VARIABLE = "AGENSH_MODEL_KEY"
TOKEN_VARIABLE = "AGENSH_MCP_TOKEN"
_HOME = ".codex"
START_SECONDS = 30  # for our endpoint to answer the CLI's handshake
CALL_SECONDS = 300  # for one call; our endpoint bounds its own calls earlier

Table = Mapping[str, Any]


def codex_home(launch: WorkerLaunch) -> Path:
    """Return the worker's CODEX_HOME: sessions, configuration, logs."""
    return launch.home / _HOME


def environment(launch: WorkerLaunch) -> dict[str, str]:
    """Return the environment of the CLI: the worker's own, and what its configuration refers to by name."""
    env = {
        **launch.env,
        "HOME": str(launch.home),
        # Codex keeps no helper programs in a CODEX_HOME below the temporary folder, so the two stand side by side.
        "TMPDIR": str(launch.tmp),
        "CODEX_HOME": str(codex_home(launch)),
    }
    if launch.mcp_url:
        env[TOKEN_VARIABLE] = launch.mcp_token
    return env | {KEY_VARIABLE: launch.model_key} if launch.model_key else env


def write_configuration(launch: WorkerLaunch) -> None:
    """Write both files anew; what Codex added to its configuration since is dropped."""
    write_private_inside(launch.home, f"{_HOME}/config.toml", _toml(_settings(launch)))
    command = hook_command(launch, "claude")
    entry = {"matcher": "*", "hooks": [{"type": "command", "command": command, "timeout": 2 * HOOK_SECONDS}]}
    hooks = {"PostToolUse": [entry]} if command else {}
    write_private_inside(launch.home, f"{_HOME}/hooks.json", json.dumps({"hooks": hooks}, indent=2) + "\n")


def _settings(launch: WorkerLaunch) -> Table:
    settings: dict[str, Any] = {
        "approval_policy": "never",
        # The worker's container, or its account, is the sandbox; Codex's own would cut it off from our endpoint.
        "sandbox_mode": "danger-full-access",
        "check_for_update_on_startup": False,
        # A login shell would replace the worker's PATH by the machine's.
        "allow_login_shell": False,
        "analytics": {"enabled": False},
        "features": {"plugins": False},
        # The token stays: the worker's other tools, such as `agensh shim`, need it.
        "shell_environment_policy": {"inherit": "all", "exclude": [KEY_VARIABLE]},
    }
    if launch.mcp_url:
        settings["mcp_servers"] = {
            SERVER: {
                "url": launch.mcp_url,
                "bearer_token_env_var": TOKEN_VARIABLE,
                "startup_timeout_sec": START_SECONDS,
                "tool_timeout_sec": CALL_SECONDS,
                "default_tools_approval_mode": "approve",
            }
        }
    if launch.model:
        settings["model"] = launch.model
    if launch.effort:
        settings["model_reasoning_effort"] = launch.effort
    if launch.max_prompt_tokens:
        settings["model_context_window"] = launch.max_prompt_tokens
    if launch.model_url:
        settings["model_provider"] = PROVIDER
        settings["model_providers"] = {PROVIDER: _provider(launch)}
    return settings


def _provider(launch: WorkerLaunch) -> Table:
    provider: dict[str, Any] = {
        "name": PROVIDER,
        "base_url": f"{launch.model_url.rstrip('/')}/v1",
        "wire_api": "responses",
    }
    if launch.model_key:
        provider["env_key"] = KEY_VARIABLE
    if "retries" in launch.options:
        provider |= dict.fromkeys(("request_max_retries", "stream_max_retries"), int(float(launch.options["retries"])))
    if "stall_seconds" in launch.options:
        provider["stream_idle_timeout_ms"] = round(float(launch.options["stall_seconds"]) * 1000)
    return provider


def _toml(table: Table, path: tuple[str, ...] = ()) -> str:
    """Return a table of strings, numbers, booleans, lists of strings and tables as TOML."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_quoted(key)} = {_quoted(value)}" for key, value in plain.items()]
    if path and plain:
        lines.insert(0, f"[{'.'.join(map(_quoted, path))}]")
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in table.items():
        if isinstance(value, Mapping):
            text += _toml(value, (*path, key))
    return text


def _quoted(value: object) -> str:
    # JSON's strings are TOML's but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
