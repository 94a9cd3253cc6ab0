"""Compose and the engine's command end with the command of ours that has called them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agensh.launch.compose import calls

ENV = dict(os.environ)


def ended(pid: int) -> bool:
    """Wait until a process is gone; one that nobody has waited for yet has no command line."""
    end = time.monotonic() + 20
    command = Path(f"/proc/{pid}/cmdline")
    while time.monotonic() < end:
        try:
            if command.read_bytes() == b"":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_the_code_and_all_of_the_output_are_returned():
    script = "echo out; echo err >&2; exit 3"
    assert calls.call(["sh", "-c", script], env=ENV, timeout=20) == (3, "out\nerr\n")
    with pytest.raises(FileNotFoundError):
        calls.call(["no-such-program"], env=ENV, timeout=20)


def test_a_program_that_takes_too_long_ends_with_what_it_has_started(tmp_path):
    script = f"sleep 60 & echo $! >{tmp_path}/below; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        calls.call(["sh", "-c", script], env=ENV, timeout=1)
    assert ended(int((tmp_path / "below").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_program_end_in_order(tmp_path, number):
    """And what it has started ends, which may be what shows its output."""
    program = f"trap 'touch {tmp_path}/in-order; exit' TERM; sleep 60 & echo $! >{tmp_path}/below; wait"
    script = (
        "import os, signal, sys\n"
        "from agensh.launch.compose.calls import call\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "try:\n"
        "    call(['sh', '-c', sys.argv[1]], env=dict(os.environ), timeout=60, out=sys.stderr)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, program], stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 20
        while not ((tmp_path / "below").exists() and (tmp_path / "below").read_text().endswith("\n")):
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        assert process.communicate(timeout=40)[0] == "interrupted\n"
    assert (tmp_path / "in-order").exists()
    assert ended(int((tmp_path / "below").read_text()))


def test_an_interrupt_while_it_starts_leaves_no_program_behind(tmp_path, monkeypatch):
    """SIGTERM comes when the program runs and `Popen` has not returned yet."""
    started: list[int] = []

    class Interrupted(subprocess.Popen[str]):
        def _execute_child(self, *arguments: object) -> None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            calls.call(["sleep", "60"], env=ENV, timeout=60)
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended(started[0])
