"""How a file is written by a line of shell: whole, or, where that is much shorter, by pieces (`kit/edit.py`). Pure."""

from __future__ import annotations

import shlex
from difflib import SequenceMatcher

_MARKS = {"<<<<<<<", "=======", ">>>>>>>"}
_CONTEXT = (1, 3)  # lines around a change; the second when the first is not unique
_WORTH = 0.5  # of the whole text: pieces that are longer are not worth it


def whole(path: str, text: str) -> str:
    """Return the line that writes a file whole; `path` is quoted already."""
    if not text.endswith("\n"):
        return f"printf %s {shlex.quote(text)} > {path}"
    return _fed(f"cat > {path}", text)


def by_pieces(program: str, path: str, old: str, new: str) -> str | None:
    """Return the line that turns `old` into `new`, None when writing it whole is as good."""
    if _MARKS & {*old.splitlines(), *new.splitlines()} or not (old.endswith("\n") and new.endswith("\n")):
        return None
    for context in _CONTEXT:
        pieces = _pieces(old, new, context)
        if pieces is not None and sum(map(len, (part for piece in pieces for part in piece))) < _WORTH * len(new):
            text = "".join(f"<<<<<<<\n{before}=======\n{after}>>>>>>>\n" for before, after in pieces)
            return _fed(f"python3 {program} {path}", text)
    return None


def _pieces(old: str, new: str, context: int) -> list[tuple[str, str]] | None:
    """Return (old lines, new lines) of each change; None when replacing them would not give `new`."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    pieces = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(context):
        first, last = group[0], group[-1]
        pieces.append(("".join(before[first[1] : last[2]]), "".join(after[first[3] : last[4]])))
    text = old
    for lines, others in pieces:
        if text.count(lines) != 1:
            return None
        text = text.replace(lines, others)
    return pieces if text == new else None


def _fed(command: str, text: str) -> str:
    mark = "END"
    while f"\n{mark}\n" in f"\n{text}":
        mark += "_"
    # In a group of its own, so that a line can follow that depends on it.
    return f"{{ {command} <<'{mark}'\n{text}{mark}\n}}"
