"""How each CLI offers its shell and the tools of MCP servers, and how they are called."""

from __future__ import annotations

from collections.abc import Sequence

from agensh.embedded.model.conversation import Call, Json, ToolSpec

_SHELLS = ("bash", "Bash", "exec_command", "shell_command", "shell", "local_shell", "run_in_terminal")
SERVER = "agensh"  # the name under which the adapters wire our endpoint in
_PATIENCE = 600  # seconds a command may take before the CLI stops waiting for it, where it lets the model say so
_YIELD = 30  # seconds, the most that Codex allows
_OUTPUT = 50_000  # tokens of a command's output, where the CLI lets the model say so


class NotOffered(LookupError):
    """The CLI does not offer the tool."""


def shell_call(tools: Sequence[ToolSpec], command: str, *, background: bool = False) -> Call:
    """Return the call that runs a command in the CLI's own shell; NotOffered when it has none."""
    for name in _SHELLS:
        for spec in tools:
            if spec.name == name and not spec.custom:
                return Call(name, _shell_arguments(spec, command, background), spec.namespace)
    raise NotOffered(f"none of {', '.join(_SHELLS)}")


def _shell_arguments(spec: ToolSpec, command: str, background: bool) -> Json:
    has = spec.properties
    arguments: Json = {}
    if "cmd" in has:
        arguments["cmd"] = command
    elif (has.get("command") or {}).get("type") == "array":
        arguments["command"] = ["bash", "-c", command]
    else:
        arguments["command"] = command
    if "description" in has:
        arguments["description"] = " ".join(command.split())[:60]
    if background:
        if "run_in_background" in has:
            arguments["run_in_background"] = True
        elif "mode" in has:
            arguments["mode"] = "async"
        return arguments
    if "mode" in spec.required:
        arguments["mode"] = "sync"
    if "initial_wait" in has:
        arguments["initial_wait"] = _PATIENCE
    if "timeout" in has:
        arguments["timeout"] = _PATIENCE * 1000
    if "yield_time_ms" in has:
        arguments["yield_time_ms"] = _YIELD * 1000
    if "max_output_tokens" in has:
        arguments["max_output_tokens"] = _OUTPUT
    return arguments


def mcp_call(tools: Sequence[ToolSpec], name: str, arguments: Json) -> Call:
    """Return the call of a tool of an MCP server: `tool`, or `server/tool` when several servers have one.

    NotOffered when the CLI does not list it.
    """
    server, _, tool = name.rpartition("/")
    for spec in tools:
        if spec.namespace:
            if spec.name == tool and spec.namespace.startswith("mcp__") and server in spec.namespace:
                return Call(tool, arguments, spec.namespace)
        elif _is_mcp(spec.name, server, tool):
            return Call(spec.name, arguments)
    if any(spec.name == "ToolSearch" for spec in tools):
        # Claude Code lists such tools only after a search, but takes the call all the same.
        return Call(f"mcp__{server or SERVER}__{tool}", arguments)
    raise NotOffered(name)


def _is_mcp(offered: str, server: str, tool: str) -> bool:
    if offered.startswith("mcp__"):
        return offered.endswith(f"__{tool}") and server in offered
    return offered.endswith(f"-{tool}") and offered.startswith(server)


def named_call(tools: Sequence[ToolSpec], name: str, arguments: Json | str) -> Call:
    """Return the call of a tool by the name the CLI offers it under (`group/tool` in a group), offered or not."""
    group, _, tool = name.rpartition("/")
    for spec in tools:
        if spec.name == tool and group in ("", spec.namespace):
            return Call(tool, arguments, spec.namespace)
    return Call(tool, arguments, group)
