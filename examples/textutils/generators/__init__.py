"""Cases of every tool, from a seed: the hidden test set and the workers' own probes share these tables.

Each module has `ORDINARY` and `EDGE`: lists of functions that take an `Inputs` (seeded material) and return a case.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable

from generators.inputs import Inputs

TOOLS = """
wc cut tr sort uniq head tail nl fold paste join comm seq tac expand unexpand fmt od cksum basename dirname
expr factor numfmt tsort
""".split()


def draw(tool: str, seed: str, ordinary: int, edge: int) -> list[dict]:
    """Return that many different cases of each kind, template by template in turn, each with fresh material."""
    module = importlib.import_module(f"generators.{tool}")
    inputs = Inputs(f"{seed}/{tool}")
    cases = _fill(inputs, module.ORDINARY, ordinary, set()) if ordinary else []
    seen = {_key(case) for case in cases}
    cases += _fill(inputs, module.EDGE, edge, seen)
    return [{"id": f"{tool}-{number:04}", **case, "group": tool} for number, case in enumerate(cases, 1)]


def _fill(inputs: Inputs, templates: list[Callable[[Inputs], dict]], count: int, seen: set[str]) -> list[dict]:
    order = list(templates)
    random.Random(inputs.random()).shuffle(order)
    cases: list[dict] = []
    # A template without random material gives one case only, so the rounds are bounded.
    for _ in range(20):
        for template in order:
            if len(cases) == count:
                return cases
            case = template(inputs)
            if _key(case) not in seen:
                seen.add(_key(case))
                cases.append(case)
    return cases


def _key(case: dict) -> str:
    return json.dumps(case, sort_keys=True)
