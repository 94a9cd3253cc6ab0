"""The scripts for cluster jobs and for reboots, with an `agensh` that writes down its calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
RUN = "run: /r/team 1 (going on; a changed spec counts for the next run)"
ALL = ["up team.toml", "wait /r/team 1", "report /r/team 1", "down /r/team 1"]


@dataclass(frozen=True, slots=True)
class Stub:
    """An `agensh` of shell: what `cases` says for a command, else success."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"AGENSH": str(self.folder / "agensh"), "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def make(self, cases: str) -> None:
        program = self.folder / "agensh"
        program.write_text(
            f'#!/bin/sh\necho "$*" >>{self.folder}/calls\n'
            f"cd {self.folder}\ncase $1 in\nup) echo '{RUN}';;\nesac\ncase $1 in\n{cases}\nesac\n"
        )
        program.chmod(0o755)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def call(self, script: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPTS / script), *arguments],
            env=self.environment | more,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)


@pytest.mark.parametrize(
    ("cases", "code", "called"),
    [
        ("", 0, ALL),
        ("wait) exit 1;;", 1, ALL),
        ("up) exit 2;;", 2, [ALL[0], ALL[3]]),
        ("down) exit 1;;", 0, ALL),
    ],
)
def test_a_cluster_job_ends_with_the_runs_exit_code_and_leaves_nothing_running(
    stub: Stub, cases: str, code: int, called: list[str]
) -> None:
    stub.make(cases)
    done = stub.call("launch_single_node.sh", "team.toml")
    assert done.returncode == code, done.stderr
    assert stub.calls() == called
    assert done.stdout.startswith(RUN)


@pytest.mark.parametrize("command", ["up", "wait"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_job_that_is_told_to_end_ends_its_command_and_stops_the_team(
    stub: Stub, command: str, number: signal.Signals, code: int
) -> None:
    # The command goes on until it is told to end itself; `down` comes after it, for one command is at work at a time.
    stub.make(f"{command}) trap 'echo ended >>calls; exit 1' TERM; echo begun; while :; do sleep 0.05; done;;")
    with subprocess.Popen(
        # A shell cannot trap what was ignored when it began, as Ctrl-C is in a job in the background.
        ["env", "--default-signal=INT", str(SCRIPTS / "launch_single_node.sh"), "team.toml"],
        env=stub.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        seen = [job.stdout.readline() for _ in range(2)]  # shown while it works, not at its end
        assert seen == [f"{RUN}\n", "begun\n"]
        job.send_signal(number)
        assert job.wait(timeout=30) == code
    assert stub.calls()[-2:] == ["ended", "down /r/team 1"]
    assert not [call for call in stub.calls() if call.startswith("report")]


def test_a_job_whose_arguments_are_wrong_has_no_team_to_stop(stub: Stub) -> None:
    stub.make("")
    program = stub.folder / "agensh"
    program.write_text(program.read_text().replace(f"up) echo '{RUN}';;", "up) echo 'no such file' >&2; exit 2;;"))
    done = stub.call("launch_single_node.sh", "none.toml", "--workers", "3")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "no such file\n")
    assert stub.calls() == ["up none.toml --workers 3"]


def test_the_baseline_passes_on_arguments_and_exit_code(stub: Stub) -> None:
    stub.make("baseline) exit 1;;")
    assert stub.call("launch_baseline.sh", "my team.toml", "--speed", "60").returncode == 1
    assert stub.calls() == ["baseline my team.toml --speed 60"]


@pytest.mark.parametrize("script", ["launch_baseline.sh", "launch_single_node.sh", "resume_after_reboot.sh"])
def test_without_agensh_a_script_says_how_to_get_it(stub: Stub, script: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "scripts"
    copy.mkdir(parents=True)
    shutil.copy(SCRIPTS / script, copy)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "mktemp"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [str(copy / script)],
        env={"PATH": str(tools), "AGENSH": "/nowhere/agensh"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"agensh is not installed: make setup in {copy.parent}\n")


@pytest.mark.parametrize(("engine", "code"), [("exit 0", 0), ("exit 1", 1)])
def test_after_a_reboot_the_teams_of_a_folder_go_on_once_the_engine_answers(
    stub: Stub, engine: str, code: int, tmp_path: Path
) -> None:
    stub.make("resume) pwd >>calls;;")
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{engine}\n")
    (tmp_path / "docker").chmod(0o755)
    done = stub.call("resume_after_reboot.sh", str(tmp_path), AGENSH_WAIT="0")
    assert done.returncode == code
    if code:
        assert done.stderr == "the Docker engine does not answer\n"
    else:
        assert stub.calls() == ["resume --all", str(tmp_path)]


def test_after_a_reboot_a_folder_that_is_not_there_is_named(stub: Stub, tmp_path: Path) -> None:
    stub.make("")
    done = stub.call("resume_after_reboot.sh", str(tmp_path / "none"))
    assert done.returncode != 0
    assert str(tmp_path / "none") in done.stderr


@pytest.fixture
def verify(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Have systemd read a unit, on a machine with an engine of the system's own."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (tmp_path / "docker.service").write_text("[Unit]\nDescription=engine\n[Service]\nExecStart=/bin/true\n")

    def check(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "agensh@.service").write_text(text)
        return subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / "agensh@srv-team.service")],
            env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return check


def test_systemd_takes_the_unit(verify: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    unit = (SCRIPTS / "agensh@.service").read_text()
    here = unit.replace("ExecStart=/opt/agensh/.venv/bin/agensh", "ExecStart=/bin/true")
    assert here != unit
    done = verify(here)
    assert (done.returncode, done.stderr) == (0, "")
    assert verify(here.replace("Type=oneshot", "Type=once")).stderr != ""
