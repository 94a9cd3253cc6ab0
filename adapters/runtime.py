"""CLI processes on this machine.

Each CLI is a child in a session of its own, so that its process group is everything it started and did not detach.
What it did detach is found through `/proc` when the process is stopped: its descendants, and whatever carries the marks
of the run and the worker in its environment, as the commands of a CLI that was killed do. The CLI dies with the node
host, also when that is killed with SIGKILL (see `parent_death`); the kernel ties this to the thread that started it, so
call `spawn` from a thread that lives as long as the CLI should, such as the one that runs the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from adapters import parent_death
from adapters.base import HarnessUnavailable

MARKS = ("AGENSH_RUN", "AGENSH_WORKER")
"""Variables that name a worker of a run; a process that has both belongs to it."""
LINE_LIMIT = 64 * 1024 * 1024  # bytes; a tool result of a CLI can carry whole files
log = logging.getLogger(__name__)
_LOOKS = 5  # for processes that were started meanwhile
_REAP = 5.0  # seconds the kernel may take to hand over a process that got SIGKILL


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells of the end of the process itself: asyncio's own `wait` also waits for whoever still holds its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=LINE_LIMIT, loop=loop)
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        """See asyncio.SubprocessProtocol."""
        super().process_exited()
        self.ended.set()


class LocalProcess:
    """A child of this process; the leader of its own group."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: _Protocol, marks: frozenset[bytes] = frozenset()
    ) -> None:
        self._transport = transport
        self._marks = marks
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._ended = protocol.ended
        self._started = _start_time(self.pid)
        self._stopping = asyncio.Lock()

    @property
    def pid(self) -> int:
        """The process id, which is also the group's and the session's."""
        return self._process.pid

    async def write_line(self, line: str) -> None:
        """Write one line; waits while the pipe is full. BrokenPipeError when the process reads no more."""
        stdin = self._process.stdin
        assert stdin is not None
        if stdin.is_closing() or self._process.returncode is not None:
            raise BrokenPipeError(f"process {self.pid} has ended")
        stdin.write(line.encode() + b"\n")
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise BrokenPipeError(f"process {self.pid} reads no more") from error

    async def read_line(self) -> str | None:
        """Return the next line without its end, or None at the end. ValueError for one above 64 MiB."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            line = await stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
            if not line:
                return None
        except asyncio.LimitOverrunError as error:
            raise ValueError(f"process {self.pid} wrote a line of more than {LINE_LIMIT} bytes") from error
        return line.decode("utf-8", "replace").rstrip("\r\n")

    async def wait(self) -> int:
        """Wait for its end; the exit code, or minus the signal."""
        await self._ended.wait()
        code = self._process.returncode
        assert code is not None
        return code

    async def stop(self, grace: float = 5.0) -> None:
        """Close its input, SIGTERM to all it started, SIGKILL after `grace` seconds. Safe to call twice or at once."""
        async with self._stopping:
            family = self._family()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._signal(signal.SIGTERM, family)
            try:
                await asyncio.wait_for(self._all_gone(family), grace)
            except TimeoutError:
                family.update(self._family())
                self._signal(signal.SIGKILL, family)
                await self._reap(family)
            finally:
                self._transport.close()
            await self._end_late_comers(family)

    async def _end_late_comers(self, family: dict[int, int]) -> None:
        """End what the others have started between the look at the family and their own end; by then it is detached."""
        for _ in range(_LOOKS):
            late = {pid: started for pid, started in marked(self._marks) if family.get(pid) != started}
            if not late:
                return
            family |= late
            self._signal(signal.SIGKILL, late)
            await self._reap(late)

    async def _reap(self, family: dict[int, int]) -> None:
        try:
            await asyncio.wait_for(self._all_gone(family), _REAP)
        except TimeoutError:
            # In the kernel's hands, or another user's by its own doing. The worker goes on without knowing them gone.
            left = sorted(self._alive(family))
            log.error("processes of a CLI do not end", extra={"pid": self.pid, "left": left})

    @property
    def _reused(self) -> bool:
        """Its number is another process's now, so nothing is left of its group; long after its end that may be so."""
        return self._ended.is_set() and _start_time(self.pid) not in (None, self._started)

    def _family(self) -> dict[int, int]:
        return {**({} if self._reused else dict(descendants(self.pid))), **dict(marked(self._marks))}

    def _signal(self, number: signal.Signals, family: dict[int, int]) -> None:
        # A program that runs as another user (setuid) is not ours to end, and must not keep us from ending the rest.
        if not self._reused:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        for pid, started in family.items():
            if _start_time(pid) == started:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    async def _all_gone(self, family: dict[int, int]) -> None:
        await self._ended.wait()
        while alive := self._alive(family):
            await asyncio.gather(*map(_ended, alive))

    def _alive(self, family: dict[int, int]) -> set[int]:
        group = set() if self._reused else _group(self.pid)
        return group | {pid for pid, started in family.items() if _start_time(pid) == started}


class LocalRuntime:
    """Starts CLIs as subprocesses of this process."""

    async def spawn(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> LocalProcess:
        """Start `command` with exactly `env`; HarnessUnavailable when there is no such program or folder."""
        loop = asyncio.get_running_loop()
        program = _program(command[0], env, cwd)
        launcher = [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid())]
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Protocol(loop),
                *launcher,
                program,
                *command[1:],
                env=dict(env),
                cwd=cwd,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=descriptor,
                start_new_session=True,
            )
        except OSError as error:
            raise HarnessUnavailable(f"{command[0]} cannot be started: {error.strerror}.") from error
        finally:
            os.close(descriptor)
        marks = frozenset(f"{name}={env[name]}".encode() for name in MARKS if env.get(name))
        return LocalProcess(transport, protocol, marks if len(marks) == len(MARKS) else frozenset())


def _program(name: str, env: Mapping[str, str], cwd: Path) -> str:
    if not cwd.is_dir():
        raise HarnessUnavailable(f"{cwd}: no such folder to start {name} in.")
    program = shutil.which(name, path=env.get("PATH", os.defpath))
    if program is None:
        raise HarnessUnavailable(f"{name}: no such program on the worker's PATH.")
    return str(Path(program).absolute())


def descendants(pid: int) -> Iterator[tuple[int, int]]:
    """Yield (process id, start time in clock ticks) of all living descendants, whatever their session."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (status := _status(int(entry.name))):
            parent, _, started = status
            children.setdefault(parent, []).append((int(entry.name), started))
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            yield child
            waiting.append(child[0])


def marked(marks: frozenset[bytes]) -> Iterator[tuple[int, int]]:
    """Yield (process id, start time) of all processes with these variables in their environment; none for no marks."""
    if not marks:
        return
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0")
            except OSError:  # gone, or somebody else's
                continue
            started = _start_time(int(entry.name))
            if started is not None and marks.issubset(variables):
                yield int(entry.name), started


def _group(group: int) -> set[int]:
    """Return the members of a process group that are no zombies."""
    pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    return {pid for pid in pids if (status := _status(pid)) is not None and status[1] == group}


async def _ended(pid: int) -> None:
    """Wait until a process that need not be our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _start_time(pid: int) -> int | None:
    status = _status(pid)
    return status[2] if status else None


def _status(pid: int) -> tuple[int, int, int] | None:
    """Return (parent, group, start time) of a process, None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; fields are counted from the last parenthesis (proc(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[2]), int(fields[19])
