"""The `agensh` command: parses, calls the parts, and turns errors into one sentence and an exit code.

Exit codes: 0 done, 1 failed (or interrupted), 2 wrong usage.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] == ["shim"]:
        # The shim runs once a worker and must stay small: nothing below is imported for it.
        from router.mcp.shim import main as shim

        sys.exit(shim(sys.argv[2:]))
    from agensh.cli.app import run

    sys.exit(run())
