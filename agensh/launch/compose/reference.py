"""What a reference program's mode keeps from workers, and what it does not."""

from __future__ import annotations

import struct
from pathlib import Path

_INTERPRETER = 3  # PT_INTERP of elf(5): the program is linked dynamically


def way_to_read(reference: Path) -> str:
    """Say in a sentence how a worker can read a reference that it may only run; empty when there is no way.

    A file that is no ELF program counts as a script.
    """
    content = reference.read_bytes()
    if content[:4] != b"\x7fELF":
        return "it is a script: workers can read it, for whoever may not read a script cannot run it."
    if _INTERPRETER in _segments(content):
        return (
            "it is linked dynamically: a worker can load a library of its own into it (LD_PRELOAD), which reads its "
            "memory. Link it statically."
        )
    return ""


def _segments(content: bytes) -> list[int]:
    """Return the types of an ELF program's segments; of a cut-off one, those that are there."""
    order = ">" if content[5:6] == b"\x02" else "<"
    wide = content[4:5] == b"\x02"
    try:
        (start,) = struct.unpack_from(order + ("Q" if wide else "L"), content, 32 if wide else 28)
        size, count = struct.unpack_from(order + "HH", content, 54 if wide else 42)
        return [struct.unpack_from(order + "L", content, start + size * index)[0] for index in range(count)]
    except struct.error:
        return []
