"""Whether a program that workers may only run can be read in another way."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from agensh.launch.compose.reference import way_to_read


def elf(*segments: int, wide: bool = True, order: str = "<") -> bytes:
    """Return the head of an ELF program with segments of these types (elf(5))."""
    identity = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    head, size = (64, 56) if wide else (52, 32)
    words = ("QQQ" if wide else "LLL", (0, head, 0))
    rest = struct.pack(f"{order}HHL{words[0]}LHHH", 2, 62, 1, *words[1], 0, head, size, len(segments))
    table = b"".join(struct.pack(f"{order}L", each) + bytes(size - 4) for each in segments)
    return (identity + rest).ljust(head, b"\0") + table


def said_of(folder: Path, content: bytes) -> str:
    program = folder / "program"
    program.write_bytes(content)
    return way_to_read(program)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_program_that_loads_libraries_lets_a_worker_in(tmp_path: Path, wide: bool, order: str) -> None:
    assert said_of(tmp_path, elf(1, 1, wide=wide, order=order)) == ""
    assert said_of(tmp_path, elf(1, 3, 1, wide=wide, order=order)).startswith("it is linked dynamically: ")


def test_a_program_of_this_machine() -> None:
    assert way_to_read(Path(sys.executable).resolve()).startswith("it is linked dynamically: ")


def test_a_script_can_be_read(tmp_path: Path) -> None:
    assert said_of(tmp_path, b"#!/bin/sh\necho\n").startswith("it is a script: ")
    assert said_of(tmp_path, b"").startswith("it is a script: ")


def test_a_program_that_is_cut_off_is_no_error(tmp_path: Path) -> None:
    for length in range(4, 120):
        said_of(tmp_path, elf(1, 3)[:length])
