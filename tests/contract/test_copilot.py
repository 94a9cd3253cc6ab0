"""GitHub Copilot CLI from npm, two versions: the cases of every CLI, and what is its own."""

from __future__ import annotations

from adapters.copilot.adapter import CopilotAdapter
from tests.support.harness_cases import HarnessCases


class TestCopilot(HarnessCases):
    adapter = CopilotAdapter
    package = "@github/copilot"
    options = {"stall_seconds": "10"}  # noqa: RUF012 (a constant of the cases)
