"""Each promise of docs/security.md names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "security.md"


def test_every_promise_has_its_test() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    promised = text.partition("## Not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ") and not line.endswith("held by |")]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.rsplit("|", 2)[1])
        assert named, f"no test holds: {row}"
        for file, function in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert function in functions, f"{file} has no {function}"
