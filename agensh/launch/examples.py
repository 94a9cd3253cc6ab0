"""Finds the bundled examples: beside the package when installed, at the root of a checkout otherwise."""

from __future__ import annotations

from pathlib import Path

import agensh
from agensh.errors import UsageError


def example(name: str) -> Path:
    """Return the folder of an example; UsageError lists those there are."""
    package = Path(agensh.__file__).parent
    for root in (package / "examples", package.parent / "examples"):
        if (root / name / "team.toml").is_file():
            return root / name
    known = sorted(
        {
            found.parent.name
            for root in (package / "examples", package.parent / "examples")
            for found in root.glob("*/team.toml")
        }
    )
    raise UsageError(f"example: there is no {name!r}; there is: {', '.join(known) or 'none'}.")
