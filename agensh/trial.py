"""One run of one program on one case: a clean folder, a sterile environment, hard limits.

The program never sees the caller's environment, runs in its own session, and whatever is left of its process group is
killed when it ends or runs out of time. Output goes to unlinked files, not to pipes: a limit on file size caps it, and
a grandchild that keeps its output open cannot hold up the caller.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from agensh.cases import AnsweredCase, Case

STERILE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "80",
}
"""The whole environment of a program under test: bytes are bytes, no locale, no home, no colours."""

# The limits are set by a shell that then becomes the program: they hold from its first instruction, and starting a
# process stays cheap (a preexec_fn would force a fork of the whole interpreter).
_LIMITED = 'ulimit -c 0; ulimit -v "$1"; ulimit -f "$2"; shift 2; exec "$@"'


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use."""

    seconds: float = 10.0
    memory: int = 4 << 30
    """Bytes of address space, per process; some run times reserve far more than they use."""
    output: int = 4 << 20
    """Bytes in any one file, standard output and standard error included."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program did: its exit code is 128 + N when signal N ended it."""

    stdout: bytes
    stderr: bytes
    code: int
    timed_out: bool = False
    overflowed: bool = False
    """It wrote more than `Limits.output` bytes."""

    def text(self) -> str:
        """Return standard output as case text."""
        return self.stdout.decode("utf-8", "surrogateescape")

    def answers(self, case: AnsweredCase) -> bool:
        """Say whether this is the answer the case asks for."""
        if self.timed_out or self.overflowed or self.code != case.code:
            return False
        if case.check_stderr_nonempty and not self.stderr:
            return False
        return self.stdout == encode(case.stdout)


@dataclass(slots=True)
class Workbench:
    """A folder in which one thread runs one case after another."""

    root: Path
    limits: Limits = field(default_factory=Limits)

    def run(self, program: Path, case: Case) -> Outcome:
        """Run `program` with the case's arguments in an empty folder that holds the case's files."""
        folder = self.root / "case"
        _empty(folder)
        for name, text in case.files.items():
            path = folder / name
            if "/" in name:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(text))
        try:
            return run_limited([str(program), *case.args], folder, stdin=encode(case.stdin or ""), limits=self.limits)
        finally:
            _empty(folder)


def encode(text: str) -> bytes:
    """Return case text as bytes."""
    return text.encode("utf-8", "surrogateescape")


def run_limited(
    command: list[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    limits: Limits,
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run a command in `folder` within limits; a program that cannot be started gives the shell's 126 or 127."""
    kib = max(1, limits.memory // 1024)
    blocks = limits.output // 512 + 1
    reader, writer = os.pipe()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        os.fdopen(reader, "rb", buffering=0) as given,
        os.fdopen(writer, "wb", buffering=0) as feed,
    ):
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", str(kib), str(blocks), *(os.fsencode(part) for part in command)],
            cwd=folder,
            env=env if env is not None else STERILE_ENV,
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        given.close()
        try:
            ended = _feed_and_wait(process, feed, stdin, limits.seconds)
        finally:
            # Before the leader is reaped its number cannot be taken by another group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        stdout, cut = _read(out, limits.output)
        stderr, cut_err = _read(err, limits.output)
    return Outcome(stdout, stderr, 128 - code if code < 0 else code, timed_out=not ended, overflowed=cut or cut_err)


def _feed_and_wait(process: subprocess.Popen[bytes], feed: FileIO, data: bytes, seconds: float) -> bool:
    """Write the input and wait for the end without reaping; say whether it came in time."""
    # Standard input is a pipe, as in most uses: some tools answer differently when it is a file whose size they see.
    # subprocess' own wait with a timeout polls with growing sleeps, which costs more than a short program takes.
    deadline = time.monotonic() + seconds
    os.set_blocking(feed.fileno(), False)
    left = memoryview(data)
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if left:
            poll.register(feed, select.POLLOUT)
        else:
            feed.close()
        while (remaining := deadline - time.monotonic()) > 0:
            ready = [number for number, _ in poll.poll(remaining * 1000)]
            if descriptor in ready:
                return True
            if ready:
                left = _feed(feed, left)
                if not left:
                    poll.unregister(feed)
                    feed.close()
        return False
    finally:
        os.close(descriptor)


def _feed(feed: FileIO, left: memoryview) -> memoryview:
    """Write what the pipe takes and return the rest: nothing once the program reads no more."""
    try:
        return left[feed.write(left) or 0 :]
    except BrokenPipeError:
        return left[:0]


def _read(file: BinaryIO, cap: int) -> tuple[bytes, bool]:
    file.seek(0)
    data = file.read(cap + 1)
    return data[:cap], len(data) > cap


def _empty(folder: Path) -> None:
    """Make `folder` exist and be empty, also when a program took away its permissions."""
    if folder.is_dir() and not folder.is_symlink():
        with os.scandir(folder) as entries:
            clean = not any(entries)
        if clean:
            return
        shutil.rmtree(folder, onerror=_force)
    folder.mkdir(parents=True, exist_ok=True)


def _force(function: object, path: str, _error: object) -> None:
    parent = Path(path).parent
    parent.chmod(0o700)
    target = Path(path)
    if target.is_dir() and not target.is_symlink():
        target.chmod(0o700)
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
