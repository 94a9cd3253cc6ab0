"""Which adapter drives which harness. An adapter's module is imported when it is asked for, not before."""

from __future__ import annotations

import importlib

from adapters.base import Adapter
from agensh.errors import UsageError

_ADAPTERS = {
    "acp": ("adapters.acp.adapter", "AcpAdapter"),
    "claude-code": ("adapters.claude_code.adapter", "ClaudeCodeAdapter"),
    "codex": ("adapters.codex.adapter", "CodexAdapter"),
    "copilot": ("adapters.copilot.adapter", "CopilotAdapter"),
    "rehearsal": ("adapters.rehearsal", "RehearsalAdapter"),
    "scripted": ("adapters.scripted.adapter", "ScriptedAdapter"),
}


def adapter_names() -> list[str]:
    """Return the names a team spec may give as harness."""
    return sorted(_ADAPTERS)


def adapter_class(name: str) -> type[Adapter]:
    """Return the adapter of a harness; UsageError that lists the known ones for any other name."""
    if name not in _ADAPTERS:
        raise UsageError(f"worker.harness: {name!r} is not known; it is one of {', '.join(adapter_names())}.")
    module, attribute = _ADAPTERS[name]
    found: type[Adapter] = getattr(importlib.import_module(module), attribute)
    return found
