"""Which claims look alike: words in any order and case, without filler and without the folders of paths.

A false alarm costs its reader a look, a miss costs two workers the same work; the threshold was set with the table of
cases in `tests/unit/test_board_overlap.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz import fuzz, utils

from agensh.entries import Entry

THRESHOLD = 87.0
"""Of 100. The table's least alike pair that must be found scores 88.9, its most alike harmless one 85.7."""

_PATH = re.compile(r"(?:[\w.@+-]+/)*([\w.@+-]+)/([\w@+-]+)(?:\.\w+)*")
_GENERIC_FILES = frozenset({"__init__", "index", "init", "lib", "main", "makefile", "mod", "readme"})
_FILLER_TEXT = """
    a an and at by for from i in into is it its me my of on the then this to up we will with
    add adding area build building claim claiming command create creating do doing fix fixing handle handling implement
    implementing make making module next now option own owning port porting refactor refactoring rewrite rewriting start
    starting support supporting take taking test testing tests tool tools update updating work working write writing
"""
_FILLER = frozenset(_FILLER_TEXT.split())


@dataclass(frozen=True, slots=True)
class Overlap:
    """An active claim of somebody else that looks like a new one."""

    entry: Entry
    score: float
    """0 to 100."""


def similarity(first: str, second: str) -> float:
    """Return how much two claims look alike, 0 to 100; one that is part of the other counts as alike."""
    return float(fuzz.token_set_ratio(_essence(first), _essence(second)))


def overlaps(claim: Entry, others: Iterable[Entry], threshold: float) -> list[Overlap]:
    """Return the claims among `others` that somebody else made before `claim` and that look like it, by seq."""
    found = [
        Overlap(other, round(score, 1))
        for other in others
        if other.seq < claim.seq
        and other.worker != claim.worker
        and (score := similarity(claim.content, other.content)) >= threshold
    ]
    return sorted(found, key=lambda overlap: overlap.entry.seq)


def _essence(content: str) -> str:
    words = utils.default_process(_PATH.sub(_file, content)).split()
    # A claim of nothing but filler is compared as it is.
    return " ".join([word for word in words if word not in _FILLER] or words)


def _file(path: re.Match[str]) -> str:
    folder, stem = path[1], path[2]
    return f"{folder} {stem}" if stem.lower() in _GENERIC_FILES else stem
