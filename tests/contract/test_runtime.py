"""What every Runtime promises, on the local one: real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from adapters import runtime
from adapters.base import HarnessUnavailable
from adapters.runtime import LocalProcess, LocalRuntime
from tests.support.router_stage import until

LIMIT = 60.0  # seconds


def alive(pid: int) -> bool:
    """Say whether a process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@asynccontextmanager
async def spawned(tmp_path: Path, *command: str, env: dict[str, str] | None = None) -> AsyncIterator[LocalProcess]:
    path = {"PATH": os.environ["PATH"]} | (env or {})
    process = await LocalRuntime().spawn(command, env=path, cwd=tmp_path, log=tmp_path / "logs" / "cli.log")
    try:
        yield process
    finally:
        await process.stop(1.0)


async def read(process: LocalProcess) -> str:
    async with asyncio.timeout(LIMIT):
        line = await process.read_line()
    assert line is not None
    return line


async def test_the_child_gets_exactly_the_given_environment_its_folder_and_a_log(tmp_path: Path) -> None:
    show = "import os, sys; sys.stdout.write(repr((dict(os.environ), os.getcwd()))); sys.stderr.write('to the log')"
    given = {"PATH": os.environ["PATH"], "A": "1", "ODD": "two words\nand a line ü"}
    # Not Python first: it may add LC_CTYPE to what it was given.
    async with spawned(tmp_path, "env", "-0", env=given) as process:
        output = (await read(process)) + "\n" + (await read(process))
        assert await process.wait() == 0
    assert dict(entry.split("=", 1) for entry in output.split("\0") if entry) == given
    async with spawned(tmp_path, sys.executable, "-c", show) as process:
        assert str(tmp_path) in await read(process)
        assert await process.wait() == 0
    assert (tmp_path / "logs" / "cli.log").read_text() == "to the log"


async def test_the_log_is_appended_to_and_private(tmp_path: Path) -> None:
    for word in ("one", "two"):
        async with spawned(tmp_path, "sh", "-c", f"echo {word} >&2") as process:
            await process.wait()
    log = tmp_path / "logs" / "cli.log"
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600


async def test_the_child_leads_its_own_group_and_session(tmp_path: Path) -> None:
    async with spawned(tmp_path, "cat") as process:
        assert os.getpgid(process.pid) == process.pid == os.getsid(process.pid)
        assert process.pid != os.getpgid(0)


async def test_lines_go_both_ways_up_to_64_mib(tmp_path: Path) -> None:
    async with spawned(tmp_path, "cat") as process:
        for line in ("", "é🙂", "x" * (5 << 20)):
            writing = asyncio.create_task(process.write_line(line))
            assert await read(process) == line
            await writing
    make = f"import sys; sys.stdout.write('a' * {(64 << 20) - 1} + '\\nrest'); sys.stdout.flush()"
    async with spawned(tmp_path, sys.executable, "-c", make) as process:
        assert len(await read(process)) == (64 << 20) - 1
        assert await read(process) == "rest"
        assert await process.read_line() is None


async def test_a_line_above_64_mib_is_an_error_not_a_hang(tmp_path: Path) -> None:
    make = f"import sys; sys.stdout.write('a' * {(64 << 20) + 10}); sys.stdout.flush(); sys.stdin.read()"
    async with spawned(tmp_path, sys.executable, "-c", make) as process:
        with pytest.raises(ValueError, match="more than 67108864 bytes"):
            await asyncio.wait_for(process.read_line(), LIMIT)


async def test_the_exit_code_and_the_signal_are_told(tmp_path: Path) -> None:
    async with spawned(tmp_path, "sh", "-c", "exit 7") as process:
        assert await process.wait() == 7
        with pytest.raises(BrokenPipeError):
            await process.write_line("too late")
    async with spawned(tmp_path, "sh", "-c", "kill -9 $$") as process:
        assert await process.wait() == -9
        assert await process.read_line() is None


async def test_stop_lets_a_cli_that_is_deaf_to_signals_end_with_its_input(tmp_path: Path) -> None:
    async with spawned(tmp_path, "sh", "-c", "trap '' TERM; echo ready; cat >/dev/null; exit 3") as process:
        assert await read(process) == "ready"
        await process.stop(LIMIT)
        assert await process.wait() == 3


FAMILY = """
trap '' TERM
(trap '' TERM; echo $BASHPID; exec sleep 1000) &
setsid sh -c "trap '' TERM; echo \\$\\$; exec sleep 1000" &
wait
"""


async def test_stop_ends_all_it_started_deaf_or_detached_and_leaves_no_zombie(tmp_path: Path) -> None:
    async with spawned(tmp_path, "bash", "-c", FAMILY) as process:
        children = [int(await read(process)), int(await read(process))]
        assert all(map(alive, children))
        began = time.monotonic()
        await process.stop(0.3)
        assert time.monotonic() - began < LIMIT
        assert await process.wait() == -signal.SIGKILL
        assert not any(map(alive, children))
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        await process.stop()


LAST_WILL = """
trap 'setsid sh -c "echo \\$\\$; exec sleep 1000" & exit 0' TERM
echo ready
while :; do sleep 0.1; done
"""


async def test_stop_ends_what_is_started_while_it_stops(tmp_path: Path) -> None:
    """A shell may start its next command between the look at its family and its own end."""
    marks = {"AGENSH_RUN": str(tmp_path), "AGENSH_WORKER": "w1"}
    async with spawned(tmp_path, "bash", "-c", LAST_WILL, env=marks) as process:
        assert await read(process) == "ready"
        await process.stop(LIMIT)
        left = dict(runtime.marked(frozenset(f"{name}={value}".encode() for name, value in marks.items())))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == {}


async def test_stop_ends_what_outlived_its_leader(tmp_path: Path) -> None:
    async with spawned(tmp_path, "sh", "-c", "sleep 1000 & echo $!") as process:
        child = int(await read(process))
        await process.wait()
        assert alive(child)
        await process.stop(1.0)
        assert not alive(child)


async def test_what_is_not_ours_to_end_keeps_nothing_else_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kill = os.kill

    def refusing(pid: int, number: int) -> None:
        if pid == foreign:  # as the kernel answers for a program that runs as another user
            raise PermissionError(1, "Operation not permitted")
        kill(pid, number)

    monkeypatch.setattr(runtime, "_REAP", 0.2)
    foreign = 0
    marks = {"AGENSH_RUN": "not-ours", "AGENSH_WORKER": "t-worker1"}
    async with spawned(tmp_path, "bash", "-c", FAMILY, env=marks) as process:
        children = [int(await read(process)), int(await read(process))]
        foreign = next(pid for pid in children if os.getsid(pid) == pid)
        monkeypatch.setattr(os, "kill", refusing)
        await process.stop(0.3)
        assert [pid for pid in children if alive(pid)] == [foreign]
        (said,) = [record for record in caplog.records if record.name == runtime.__name__]
        assert said.__dict__["left"] == [foreign]
        monkeypatch.undo()
        await process.stop()
        assert not alive(foreign)


async def test_a_number_that_was_used_again_belongs_to_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CLI that died by itself may be stopped hours later, when another worker's CLI has its number."""
    async with AsyncExitStack() as stack:
        ended = await stack.enter_async_context(spawned(tmp_path, "cat"))
        started = dict(runtime.descendants(os.getpid()))[ended.pid]
        os.kill(ended.pid, signal.SIGKILL)
        await ended.wait()
        other = ended
        # Start times are told in hundredths of a second.
        while dict(runtime.descendants(os.getpid())).get(other.pid, started) == started:
            other = await stack.enter_async_context(spawned(tmp_path, "cat"))
        with monkeypatch.context() as patched:
            number = other.pid
            patched.setattr(LocalProcess, "pid", property(lambda process: number))
            await ended.stop()
        await other.write_line("still here")
        assert await read(other) == "still here"


async def test_two_stops_at_once_are_one(tmp_path: Path) -> None:
    async with spawned(tmp_path, "cat") as process:
        await asyncio.gather(process.stop(), process.stop())
        assert not alive(process.pid)


HOST = """
import asyncio, os, sys
from pathlib import Path
from adapters.runtime import LocalRuntime
async def main():
    here = Path(sys.argv[1])
    process = await LocalRuntime().spawn(["sleep", "1000"], env=dict(os.environ), cwd=here, log=here / "log")
    print(process.pid, flush=True)
    await process.wait()
asyncio.run(main())
"""


async def test_the_child_dies_with_a_host_that_is_killed(tmp_path: Path) -> None:
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    child = int(await host.stdout.readline())
    assert alive(child)
    host.kill()
    await host.wait()
    await until(lambda: not alive(child))


async def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = {"PATH": os.environ["PATH"]}
    with pytest.raises(HarnessUnavailable, match="no-such-cli: no such program on the worker's PATH"):
        await LocalRuntime().spawn(["no-such-cli"], env=env, cwd=tmp_path, log=log)
    with pytest.raises(HarnessUnavailable, match="gone: no such folder to start cat in"):
        await LocalRuntime().spawn(["cat"], env=env, cwd=tmp_path / "gone", log=log)
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    process = await LocalRuntime().spawn([str(broken)], env=env, cwd=tmp_path, log=log)
    assert await process.wait() == 127
    assert "No such file or directory" in log.read_text()
    await process.stop()
