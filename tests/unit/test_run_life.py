"""A run's life without an engine: reboots, names, logs, what the commands say to mistakes."""

from __future__ import annotations

import secrets
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from agensh.cli import app
from agensh.cli.composing import clean_all, go_on, go_on_all
from agensh.cli.living import attach_to, export_run, pause_run, show_log, worker_name
from agensh.clock import SystemClock
from agensh.errors import AgenshError, UsageError
from agensh.launch.compose.live import read_compose_env, shell_command
from agensh.launch.compose.project import ENDED, create_project_run, write_compose_env
from agensh.launch.compose.reboot import boot_id, must_abort
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.rundir import RunDir, new_run_dir
from agensh.spec import load_spec

ROOT = Path(__file__).parents[2]


def in_containers(root: Path, **overrides: object) -> RunDir:
    spec = load_spec(example("textutils") / "team.toml", overrides)
    return create_project_run(spec, root, SystemClock(), images={}, environment={})


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return in_containers(tmp_path)


@pytest.fixture
def local(tmp_path: Path) -> RunDir:
    return create_run(load_spec(example("textutils") / "team.toml"), tmp_path, SystemClock())


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not a Unix socket that is missing: there the docker package leaves an open one behind.
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")


def test_a_reboot_ends_the_run_only_where_the_spec_says_so(tmp_path):
    for on_reboot, ends in (("resume", False), ("abort", True)):
        run = in_containers(tmp_path, **{"container.on_reboot": on_reboot})
        info = run.info()
        assert not must_abort(run, info, "first")
        assert not must_abort(run, info, "first")
        assert must_abort(run, info, "second") is ends
        assert must_abort(run, info, "second") is ends


def test_two_runs_of_a_second_with_the_same_random_value_have_folders_of_their_own(tmp_path, monkeypatch):
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: next(drawn))
    made = [new_run_dir(tmp_path / "new" / "runs", "demo", 0.0) for _ in range(2)]
    assert [run.run_id for run in made] == ["demo-19700101-000000-aaaa", "demo-19700101-000000-bbbb"]
    assert [run.path.stat().st_mode & 0o777 for run in made] == [0o700, 0o700]


def test_the_boot_id_is_the_kernels():
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36


def test_a_worker_is_named_with_or_without_its_team(local):
    info = local.info()
    assert worker_name(info, "demo-worker3") == worker_name(info, "worker3") == "demo-worker3"
    with pytest.raises(UsageError, match=r"worker: 'worker9' is none of this run's: demo-worker1 … demo-worker8\."):
        worker_name(info, "worker9")


def test_a_log_is_shown_from_its_last_lines_and_cannot_steer_the_terminal(local, capsys):
    local.logs.mkdir(exist_ok=True)
    log = local.logs / "demo-worker1.log"
    log.write_text("".join(f"line {number} {'x' * 200}\n" for number in range(2000)) + "\x1b[2Jend")
    show_log(local, "worker1", lines=3, follow=False)
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()[:2]] == [["line", "1998"], ["line", "1999"]]
    assert shown.endswith("\\x1b[2Jend")
    show_log(local, "worker1", lines=0, follow=False)
    assert capsys.readouterr().out.startswith("line 0 ")
    show_log(local, "worker1", lines=1, follow=True)  # nobody runs the run, so nothing is waited for
    assert capsys.readouterr().out == "\\x1b[2Jend"
    with pytest.raises(AgenshError, match=r"there is no log of demo-worker2 in .*: it has not started"):
        show_log(local, "worker2", lines=0, follow=False)
    with pytest.raises(UsageError, match=r"worker: 'gateway' is none of this run's: .*, board, forge, chat, node"):
        show_log(local, "gateway", lines=0, follow=False)


def test_a_log_of_any_length_keeps_its_characters(local, capsys):
    local.logs.mkdir(exist_ok=True)
    text = "x" + "ä€😀" * 30_000 + "\n"  # longer than what is read at once, and no character begins at a round place
    (local.logs / "demo-worker1.log").write_bytes(text.encode() + b"cut \xe2\x82")
    show_log(local, "worker1", lines=0, follow=False)
    assert capsys.readouterr().out == text + "cut \ufffd"


def test_a_local_run_cannot_be_frozen_or_attached_to(local):
    with pytest.raises(UsageError, match=r"pause: .* runs without containers"):
        pause_run(local)
    with pytest.raises(
        UsageError, match=rf"attach: .* the folder of demo-worker2 is {local.path}/workers/demo-worker2"
    ):
        attach_to(local, "worker2")


def test_an_export_needs_a_record_and_an_empty_folder(local, tmp_path):
    with pytest.raises(AgenshError, match="has no record yet"):
        export_run(local, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match=r"--to: .* is not an empty folder"):
        export_run(local, tmp_path / "full")


def test_an_export_has_no_credential(local, tmp_path):
    record = local.path / "record"
    record.mkdir(exist_ok=True)
    (record / "entries.json").write_text("[]")
    local.logs.mkdir(exist_ok=True)
    (local.logs / "node.jsonl").write_text("{}\n")
    export_run(local, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"run.json", "report.json", "record", "logs"}
    secrets = local.secrets()
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert secrets.node_admin not in path.read_text()


@pytest.mark.usefixtures("no_engine")
def test_clean_all_never_fails(run, tmp_path, capsys):
    clean_all(tmp_path / "nothing")
    assert capsys.readouterr() == ("", "")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    clean_all(tmp_path)
    assert capsys.readouterr().err.startswith("nothing is removed of demo: The Docker engine does not answer")
    assert not (run.path / ENDED).exists()


@pytest.mark.usefixtures("no_engine")
def test_a_run_that_is_over_does_not_go_on(run, tmp_path):
    (run.path / ENDED).touch()
    with pytest.raises(AgenshError, match="is over; `agensh report"):
        go_on(run)
    go_on_all(tmp_path)
    (run.path / ENDED).unlink()
    with pytest.raises(AgenshError, match="engine does not answer"):
        go_on_all(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "not running (new, The Docker engine does not answer"),
        (["pause"], "The Docker engine does not answer"),
        (["stop"], "The Docker engine does not answer"),
        (["logs", "node"], "The Docker engine does not answer"),
        (["logs", "nobody"], "worker: 'nobody' is none of this run's"),
        (["export"], "has no record yet"),
        (["clean", "x", "--all"], "--all: not with a run ('x')"),
        (["resume", "x", "--all"], "--all: not with a run ('x')"),
    ],
)
@pytest.mark.usefixtures("no_engine", "run")
def test_without_an_engine_each_command_says_so_in_a_sentence(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["agensh", *arguments, "--runs", str(tmp_path)])
    app.run()
    assert said in "".join(capsys.readouterr())


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "team" / "run.json").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["agensh", "status", "--runs", str(tmp_path)])
    assert app.run() == 1
    assert capsys.readouterr().err == f"agensh: {tmp_path}/team/run.json: Is a directory\n"


def test_what_a_project_was_started_with_is_kept(run):
    assert read_compose_env(run) == {}
    write_compose_env(run, {"AGENSH_PORT_GITEA": "3001", "AGENSH_RUN": "/a=b"})
    assert read_compose_env(run) == {"AGENSH_PORT_GITEA": "3001", "AGENSH_RUN": "/a=b"}


def test_a_shell_is_the_workers_own():
    command = shell_command("demo_demo-worker1", "/r/home", "/r/work", terminal=False)
    assert command[:9] == ["docker", "exec", "-i", "-u", "10000:10000", "-w", "/r/work", "-e", "HOME=/r/home"]
    assert "-t" in shell_command("c", "/h", "/w", terminal=True)


def test_the_unit_goes_on_and_starts_nothing_new():
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "scripts/agensh@.service")
    assert unit["Service"]["ExecStart"].endswith("/agensh resume --all")
    assert unit["Service"]["WorkingDirectory"] == "%f"
    assert 'agensh" resume --all' in (ROOT / "scripts/resume_after_reboot.sh").read_text()
