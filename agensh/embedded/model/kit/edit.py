"""edit.py FILE: replace pieces of a file. Standard input holds the pieces, each as

<<<<<<<
old lines, which occur once
=======
new lines
>>>>>>>
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(name: str) -> int:
    """Replace all pieces, or none."""
    text = Path(name).read_text()
    for piece in sys.stdin.read().split("<<<<<<<\n")[1:]:
        old, _, rest = piece.partition("=======\n")
        if text.count(old) != 1:
            print(f"{name}: the old lines occur {text.count(old)} times:\n{old}")
            return 1
        text = text.replace(old, rest.partition(">>>>>>>\n")[0])
    Path(name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
