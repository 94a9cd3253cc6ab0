"""The launcher's parts against real processes."""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agensh.clock import SystemClock
from agensh.launch.children import Child, ServiceFailed, last_words, start_all, stop_all
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.launch.export import pack
from agensh.launch.lock import RunBusy, hold_lock, lock_file, running_launcher
from agensh.rundir import RunDir, WorkerSecrets
from agensh.runs.checkpoints import accept
from agensh.runs.collect import Collector, git
from agensh.spec import load_spec


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())


def board(run: RunDir) -> Child:
    return Child("board", run, f"{run.info().urls.board}/healthz", SystemClock())


def is_running(pid: int) -> bool:
    """Say whether that process exists and is no zombie (a zombie has no command line)."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and command.read_bytes() != b""


def test_a_new_run_keeps_its_secrets_to_itself(run):
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert run.secrets_file.stat().st_mode & 0o777 == 0o600
    text = run.run_file.read_text()
    secrets = run.secrets()
    for secret in (secrets.board_admin, secrets.node_admin, secrets.forge_admin.password, secrets.chat_admin.password):
        assert len(secret) >= 24
        assert secret not in text


def test_one_launcher_a_run(run):
    assert running_launcher(run) is None
    with hold_lock(run):
        assert running_launcher(run) == os.getpid()
        with pytest.raises(RunBusy, match=rf"process {os.getpid()}.*agensh stop"), hold_lock(run):
            pass
    assert running_launcher(run) is None
    with hold_lock(run):
        pass


def test_who_only_looks_for_a_launcher_is_none_and_keeps_none_from_starting(run):
    """Two commands at once: what `agensh status` holds for a moment, and the number of an earlier launcher."""

    def start() -> int | None:
        with hold_lock(run):
            return running_launcher(run)

    lock_file(run).write_text("1\n")
    with lock_file(run).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert running_launcher(run) is None
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(start)
            with pytest.raises(TimeoutError):
                starting.result(0.1)  # it waits, and is not refused
            fcntl.flock(looking, fcntl.LOCK_UN)
            assert starting.result(20) == os.getpid()
    assert lock_file(run).read_text() == ""


async def test_a_service_starts_answers_and_ends(run):
    child = board(run)
    await start_all([child], lambda _: None)
    pid = child.pid
    assert pid is not None
    await stop_all([child])
    assert child.pid is None
    assert not is_running(pid)


async def test_a_port_in_use_is_named_and_nothing_is_left_running(run):
    port = int(run.info().urls.board.rsplit(":", 1)[1])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        forge = Child("forge", run, f"{run.info().urls.forge}/api/healthz", SystemClock())
        with pytest.raises(
            ServiceFailed, match=rf"board did not start: .*port: {port} on 127\.0\.0\.1 is already in use"
        ):
            await start_all([forge, board(run)], lambda _: None)
        assert forge.pid is None


def test_a_service_ends_with_its_launcher(run):
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from agensh.clock import SystemClock\n"
        "from agensh.launch.children import Child, start_all\n"
        "from agensh.rundir import RunDir\n"
        "async def main():\n"
        "    run = RunDir(Path(sys.argv[1]))\n"
        "    child = Child('board', run, run.info().urls.board + '/healthz', SystemClock())\n"
        "    await start_all([child], lambda _: None)\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(run.path)], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} outlived its launcher"
        time.sleep(0.05)


def test_last_words_of_a_log(tmp_path):
    assert last_words(tmp_path / "none") == "it left no log"
    (tmp_path / "log").write_text("one\ntwo\n\n")
    assert last_words(tmp_path / "log") == "two"


def test_the_archive_is_reproducible_root_owned_and_has_dot_entries(tmp_path):
    source = tmp_path / "source"
    (source / "src").mkdir(parents=True)
    (source / "compile.sh").write_text("#!/bin/sh\n")
    (source / "compile.sh").chmod(0o755)
    (source / "src" / "link").symlink_to("../compile.sh")
    pack(source, tmp_path / "one.tar.gz", 1_700_000_000)
    os.utime(source / "compile.sh", (1, 1))
    pack(source, tmp_path / "two.tar.gz", 1_700_000_000)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with gzip.open(tmp_path / "one.tar.gz") as stream, tarfile.open(fileobj=stream) as archive:
        members = {member.name: member for member in archive}
    assert set(members) == {".", "./compile.sh", "./src", "./src/link"}
    assert {(member.uid, member.uname, member.mtime) for member in members.values()} == {(0, "root", 1_700_000_000)}
    assert members["./compile.sh"].mode & 0o111


@pytest.mark.parametrize(
    ("command", "accepted", "said"),
    [
        ("test -f hello && echo fine", True, "fine"),
        ("echo broken; exit 3", False, "broken"),
        ("sleep 30", False, "stopped"),
    ],
)
def test_an_acceptance_command_runs_in_a_clean_export(tmp_path, command, accepted, said):
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "hello").write_text("hello\n")

    async def commit() -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        await git("init", "--quiet", "--initial-branch=main", cwd=repository)
        await git("add", "hello", cwd=repository)
        await git(*who, "commit", "--quiet", "-m", "one", cwd=repository)

    asyncio.run(commit())
    (repository / "not-committed").write_text("x")
    clean = "test ! -e not-committed && test ! -e .git"
    verdict, log = accept(repository, "main", f"{clean} && {{ {command}; }}", timeout=2.0)
    assert verdict is accepted
    assert said in log


async def test_a_clone_cut_off_in_the_making_does_not_stop_the_collector(run):
    secrets = run.secrets()
    one = dict.fromkeys(
        ("forge_password", "forge_token", "chat_token", "chat_user_id", "board_token", "mcp_token"), "x"
    )
    secrets.workers["demo-worker1"] = WorkerSecrets(**one)
    collector = Collector(run, run.info(), secrets)
    await git("init", "--quiet", "--bare", "--initial-branch=main", str(collector.mirror))
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    tree = (await git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=collector.mirror)).strip()
    first = (await git(*who, "commit-tree", "-m", "one", tree, cwd=collector.mirror)).strip()
    await git("update-ref", "refs/heads/main", first, cwd=collector.mirror)
    (run.worker("demo-worker1") / "work" / "repository" / ".git").mkdir(parents=True)
    assert await collector._stranded([]) == []
