"""Ways to read a program that can be run. Runs in a worker's container, with nothing but Python, gdb and a compiler.

`python3 reading.py PROGRAM FOLDER` tries each and prints, as JSON, how many bytes of the program it got, or why none.
A readable copy gives its bytes to every one of them, so that what gives none for the reference means something.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MARKS = (b"\x7fELF", b"usage: textutils TOOL")
"""What a part of the program is known by: its head, and a text in it."""
ATTEMPTS: dict[str, Callable[[str, Path], bytes]] = {}
PEEKTEXT, CONT, ATTACH, DETACH = 1, 7, 16, 17  # of ptrace(2)
TRACEME = 0
HEAD = 0x400000
"""Where a static program that is not position-independent has its head (ld, x86-64)."""
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long


def attempt(function: Callable[[str, Path], bytes]) -> Callable[[str, Path], bytes]:
    """Take a way to read the program up in the list."""
    ATTEMPTS[function.__name__] = function
    return function


def said(*command: str, target: Path | None = None) -> bytes:
    """Return what a command wrote, or the file that it should have made; OSError with its last words without either."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300)
    if target is not None and target.exists():
        return target.read_bytes()
    if done.returncode:
        raise OSError((done.stderr or done.stdout).decode(errors="replace").strip()[-200:])
    return done.stdout


@contextmanager
def held(program: str) -> Iterator[int]:
    """Yield the process id of the program while it waits for its input to end."""
    with subprocess.Popen([program, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # it says that it is there: its memory is not when Popen returns
            yield process.pid
        finally:
            process.kill()


@attempt
def opened(program: str, folder: Path) -> bytes:
    return Path(program).read_bytes()


@attempt
def cat(program: str, folder: Path) -> bytes:
    return said("cat", program)


@attempt
def cp(program: str, folder: Path) -> bytes:
    return said("cp", program, str(folder / "cp"), target=folder / "cp")


@attempt
def dd(program: str, folder: Path) -> bytes:
    return said("dd", f"if={program}")


@attempt
def link(program: str, folder: Path) -> bytes:
    (folder / "link").symlink_to(program)
    return (folder / "link").read_bytes()


@attempt
def chmod(program: str, folder: Path) -> bytes:
    Path(program).chmod(stat.S_IRWXU)
    return Path(program).read_bytes()


@attempt
def path_descriptor(program: str, folder: Path) -> bytes:
    descriptor = os.open(program, os.O_PATH)
    return Path(f"/proc/self/fd/{descriptor}").read_bytes()


@attempt
def proc_exe(program: str, folder: Path) -> bytes:
    with held(program) as pid:
        return Path(f"/proc/{pid}/exe").read_bytes()


@attempt
def proc_map_files(program: str, folder: Path) -> bytes:
    # Opening one takes more rights than a worker has, whatever the program, so that it is listed is what counts.
    with held(program) as pid:
        return MARKS[0] if list(Path(f"/proc/{pid}/map_files").iterdir()) else b""


@attempt
def proc_maps(program: str, folder: Path) -> bytes:
    with held(program) as pid:
        return MARKS[0] if f"{HEAD:08x}-" in Path(f"/proc/{pid}/maps").read_text() else b""


@attempt
def proc_mem(program: str, folder: Path) -> bytes:
    with held(program) as pid, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(HEAD)
        return memory.read(4096)


@attempt
def process_vm_readv(program: str, folder: Path) -> bytes:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(4096)
    with held(program) as pid:
        here, there = Vector(ctypes.addressof(buffer), 4096), Vector(HEAD, 4096)
        got = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    _checked(got)
    return buffer.raw


@attempt
def ptrace_attach(program: str, folder: Path) -> bytes:
    with held(program) as pid:
        _checked(libc.ptrace(ATTACH, pid, None, None))
        os.waitpid(pid, 0)
        return _peek(pid)


@attempt
def ptrace_from_the_start(program: str, folder: Path) -> bytes:
    pid = os.fork()
    if pid == 0:
        libc.ptrace(TRACEME, 0, None, None)
        os.execv(program, [program, "hold"])
    try:
        _, status = os.waitpid(pid, 0)  # it stops when it has become the program
        if not os.WIFSTOPPED(status):
            raise OSError("it did not stop")
        return _peek(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@attempt
def gdb_starts_it(program: str, folder: Path) -> bytes:
    dump = folder / "gdb"
    commands = ("starti", f"dump binary memory {dump} {HEAD:#x} {HEAD + 4096:#x}", "kill")
    return said("gdb", "-batch", "-nx", *(part for text in commands for part in ("-ex", text)), program, target=dump)


@attempt
def gdb_makes_a_core(program: str, folder: Path) -> bytes:
    core = folder / "core"
    with held(program) as pid:
        return said("gdb", "-batch", "-nx", "-p", str(pid), "-ex", f"generate-core-file {core}", target=core)


def _peek(pid: int) -> bytes:
    ctypes.set_errno(0)
    word = libc.ptrace(PEEKTEXT, pid, HEAD, None)
    if ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return ctypes.c_ulong(word).value.to_bytes(8, "little")


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(program: str, folder: Path) -> None:
    """Try them all; each has a folder of its own."""
    found: dict[str, int | str] = {}
    for name, function in ATTEMPTS.items():
        place = folder / name
        place.mkdir()
        try:
            got = function(program, place)
            found[name] = len(got) if any(mark in got for mark in MARKS) else f"{len(got)} bytes, none of the program"
        except OSError as error:
            found[name] = str(error) or type(error).__name__
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
