"""The shim as a process around a server: signals, endings, usage, size."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.shim.session import FAIL, PATIENCE, Session, call, message, result, wait_for, write
from tests.support.pending_server import PendingServer


@pytest.mark.parametrize(
    ("steps", "code"),
    [([["exit", 3]], 3), ([["exit", 0]], 0), ([["drain"], ["exit", 5]], 5)],
    ids=["3", "0", "after EOF"],
)
def test_the_exit_code_is_the_servers(start: Callable[..., Session], steps: list[list[Any]], code: int) -> None:
    assert start(*steps).finish()[2] == code


def test_the_servers_stderr_is_inherited(start: Callable[..., Session]) -> None:
    session = start(["stderr", base64.b64encode(b"r\xc3\xa4w\x00bytes").decode()], ["drain"])
    assert session.finish()[1] == b"r\xc3\xa4w\x00bytes"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_server(start: Callable[..., Session], number: signal.Signals) -> None:
    session = start(["wait_signal", int(number)])
    assert session.line() == b'{"ready":1}\n'
    session.process.send_signal(number)
    assert session.process.wait(PATIENCE) == 7


def test_a_killed_server_is_reported_as_such(start: Callable[..., Session]) -> None:
    session = start(["wait_signal", int(signal.SIGUSR1)])
    session.line()
    session.process.send_signal(signal.SIGTERM)
    assert session.process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_the_servers_children_end_with_it(start: Callable[..., Session], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    session = start(["grandchild", str(pid_file)], ["drain"])
    session.finish()
    pid = int(pid_file.read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_vanished_client_ends_the_server(start: Callable[..., Session]) -> None:
    session = start(["read", 1], write(message(result(1))), ["wait_signal", int(signal.SIGTERM)])
    session.stdout.close()
    session.send(call(1))
    assert session.process.wait(PATIENCE) == 7


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "sentence"),
    [
        (["--", "true"], {"AGENSH_BOARD_URL": ""}, 2, "set AGENSH_PENDING_URL, or AGENSH_BOARD_URL and AGENSH_WORKER"),
        (["--", "true"], {"AGENSH_WORKER": ""}, 2, "set AGENSH_PENDING_URL, or AGENSH_BOARD_URL and AGENSH_WORKER"),
        (["--", "true"], {"AGENSH_BOARD_TOKEN": ""}, 2, "set AGENSH_BOARD_TOKEN"),
        (["--", "true"], {"AGENSH_BOARD_URL": "ftp://x"}, 2, "is not an http:// or https:// URL"),
        ([], {}, 2, "usage: agensh shim -- <command"),
        (["--"], {}, 2, "usage: agensh shim -- <command"),
        (["--frob", "x"], {}, 2, "unknown option --frob; put -- before the command"),
        (["--", "no-such-command-here"], {}, 127, "'no-such-command-here' was not found"),
        (["--", "/etc"], {}, 126, "'/etc' cannot be started"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], environment: dict[str, str], code: int, sentence: str
) -> None:
    given = {"AGENSH_BOARD_URL": "http://127.0.0.1:1", "AGENSH_WORKER": "w", "AGENSH_BOARD_TOKEN": "t", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "router.mcp.shim", *arguments],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_the_shim_is_small(
    start: Callable[..., Session], board: PendingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    board.post(1, FAIL)
    session = start(["read", 1], write(message(result(1))), ["drain"])
    session.send(call(1))
    session.line()
    status = Path(f"/proc/{session.process.pid}/status").read_text()
    kilobytes = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    with capsys.disabled():
        print(f"\nshim: {kilobytes / 1024:.1f} MiB resident")  # noqa: T201 - a measurement
    assert kilobytes <= 30 * 1024
