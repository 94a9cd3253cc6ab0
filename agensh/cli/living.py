"""What the commands for a run that is there do."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.live import KEPT_LOGS, SERVICES, LiveRun, ProjectState, refresh, shell_command
from agensh.launch.compose.project import ENDED
from agensh.launch.lock import running_launcher
from agensh.launch.takeout import take_out
from agensh.rundir import RunDir, RunInfo
from agensh.runs.html import clock_label
from agensh.runs.record import load_record
from agensh.text import printable

_LOOK = 0.3  # seconds between two looks at a log
_ALIVE = 3.0  # seconds between two looks whether the run goes on
_TAIL_BLOCK = 1 << 16


def pause_run(run: RunDir) -> None:
    """Freeze a run in containers and say that its clock goes on."""
    if run.info().containers is None:
        raise UsageError(
            f"pause: {run.run_id} runs without containers and cannot be frozen; `agensh stop` ends it in order and "
            "`agensh resume` goes on, on the same clock."
        )
    live = LiveRun(run)
    left = ""
    if live.state() is ProjectState.RUNNING:
        try:
            left = f" ({clock_label(max(0.0, live.ask()[0]['deadline'] - time.time()))} left)"
        except AgenshError:
            left = ""  # it does not answer yet, or no more; it can be frozen all the same
    count = live.pause()
    typer.echo(f"paused: the node host and {count} workers of {run.run_id}; the run's clock goes on{left}")
    typer.echo(f"go on with: agensh resume {run.run_id}")


def wait_for_end(run: RunDir) -> None:
    """Return when the run's time is over and its report is written; AgenshError when it ends in another way."""
    LiveRun(run).wait_for_end()
    state = asyncio.run(load_record(run)).state
    if state != "finished":
        raise AgenshError(f"{run.run_id} did not get to its end: it is {state}.")


def show_log(run: RunDir, name: str, *, lines: int, follow: bool) -> None:
    """Print the log of a worker or of a process of the run."""
    info = run.info()
    processes = _processes(info)
    if name in processes and info.containers is not None:
        live = LiveRun(run)
        if live.service(name) is not None:
            _write(live.service_log(name, lines=lines, follow=follow))
            return
    if name in processes:
        file = run.logs / f"{name}.jsonl"
    else:
        name = worker_name(info, name, others=processes)
        file = run.logs / f"{name}.log"
    if not file.exists() and not follow:
        why = "it has not started"
        if name in processes and info.containers is not None:
            why = f"it has no container, and only the logs of {', '.join(KEPT_LOGS)} are kept when theirs go"
        raise AgenshError(f"there is no log of {name} in {run.run_id}: {why}.")
    if not follow and not file.stat().st_size:
        typer.echo(f"{name} has logged nothing", err=True)
    _write(_read(file, lines, _goes_on(run, info) if follow else None))


def attach_to(run: RunDir, worker: str) -> None:
    """Replace this process by a shell in the worker's container."""
    info = run.info()
    name = worker_name(info, worker)
    folder = run.worker(name)
    if info.containers is None:
        raise UsageError(f"attach: {run.run_id} runs without containers; the folder of {name} is {folder}.")
    if shutil.which("docker") is None:
        raise AgenshError("the docker command is not installed: apt install docker-cli (or docker.io).")
    container = LiveRun(run).worker(name)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    command = shell_command(str(container.name), str(folder / "home"), str(folder / "work"), terminal=terminal)
    sys.stdout.flush()
    os.execvp(command[0], command)


def export_run(run: RunDir, to: Path | None) -> None:
    """Write a run out to a folder of its own."""
    target = (to or Path(f"{run.run_id}-export")).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"--to: {str(target)!r} exists and is not an empty folder; name another one.")
    info = run.info()
    if why := refresh(run, info):
        typer.echo(f"{why}; what was collected before is written", err=True)
    for line in asyncio.run(take_out(run, info, target, collect=running_launcher(run) is not None)):
        typer.echo(line)


def worker_name(info: RunInfo, name: str, *, others: tuple[str, ...] = ()) -> str:
    """Return the full handle of a worker that is named in full or without its team; UsageError says what there is."""
    names = info.spec.worker_names
    for candidate in (name, f"{info.spec.team.name}-{name}"):
        if candidate in names:
            return candidate
    allowed = f"{names[0]} … {names[-1]}" if len(names) > 1 else names[0]
    raise UsageError(f"worker: {name!r} is none of this run's: {', '.join((allowed, *others))}.")


def _processes(info: RunInfo) -> tuple[str, ...]:
    if info.containers is not None:
        return tuple(name for name in SERVICES if name != "gateway" or info.spec.gateway is not None)
    optional = ("gateway",) * (info.spec.gateway is not None) + ("model",) * bool(info.urls.model)
    return ("board", "forge", "chat", *optional, *(place.name for place in info.places))


def _goes_on(run: RunDir, info: RunInfo) -> Callable[[], bool]:
    if info.containers is None:
        return lambda: running_launcher(run) is not None
    live = LiveRun(run)
    return lambda: not (run.path / ENDED).exists() and live.state() is not ProjectState.DOWN


def _read(file: Path, lines: int, goes_on: Callable[[], bool] | None) -> Iterator[bytes]:
    """Yield the last `lines` lines of a file (0: all), then what is added as long as `goes_on`."""
    while not file.exists():
        if goes_on is None or not goes_on():
            return
        time.sleep(_LOOK)
    with file.open("rb") as stream:
        stream.seek(_start_of_last(file, lines) if lines else 0)
        checked = time.monotonic()
        alive = goes_on is not None and goes_on()
        while True:
            piece = stream.read(_TAIL_BLOCK)
            if piece:
                yield piece
            elif not alive:
                return
            else:
                time.sleep(_LOOK)
                if goes_on is not None and time.monotonic() - checked > _ALIVE:
                    checked, alive = time.monotonic(), goes_on()


def _start_of_last(file: Path, lines: int) -> int:
    """Return where the last `lines` lines of a file begin."""
    with file.open("rb") as stream:
        position = stream.seek(0, os.SEEK_END)
        if not position:
            return 0
        stream.seek(-1, os.SEEK_END)
        wanted = lines + (stream.read(1) == b"\n")  # the last line's own end does not count
        while position > 0:
            size = min(_TAIL_BLOCK, position)
            position -= size
            stream.seek(position)
            block = stream.read(size)
            found = block.count(b"\n")
            if found >= wanted:
                at = len(block)
                for _ in range(wanted):
                    at = block.rindex(b"\n", 0, at)
                return position + at + 1
            wanted -= found
    return 0


def _write(pieces: Iterator[bytes]) -> None:
    # A piece may end in the middle of a character. What a worker logs must not steer the reader's terminal.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        sys.stdout.write(printable(decoder.decode(piece)))
        sys.stdout.flush()
    sys.stdout.write(printable(decoder.decode(b"", final=True)))
