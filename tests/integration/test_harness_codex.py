"""The real Codex CLI, from npm, on the scripted model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from adapters.base import Adapter
from adapters.codex.adapter import CodexAdapter
from tests.support.harness_cases import HarnessCases


class TestCodex(HarnessCases):
    """All cases."""

    adapter: ClassVar[type[Adapter]] = CodexAdapter
    package: ClassVar[str] = "@openai/codex"
    options: ClassVar[Mapping[str, str]] = {"retries": "1", "stall_seconds": "2"}
