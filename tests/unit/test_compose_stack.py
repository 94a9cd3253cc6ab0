"""A project's way from `up` to `clean`, against an engine that only lists and a Compose that only writes down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import NotFound

from agensh.cli import app, composing
from agensh.cli.composing import bring_up, clean_up, go_on, provision_again, take_down
from agensh.clock import SystemClock
from agensh.errors import AgenshError, UsageError
from agensh.identity import write_private_json
from agensh.launch.compose import ending, live, stack
from agensh.launch.compose.live import refresh
from agensh.launch.compose.project import ENDED, ENDING, create_project_run
from agensh.launch.compose.reboot import BOOT_FILE
from agensh.launch.examples import example
from agensh.launch.lock import RunBusy, alone_in, hold_command_lock
from agensh.rundir import RunDir
from agensh.spec import load_spec

SPEC = example("textutils") / "team.toml"


class Container:
    """A container as the engine lists it."""

    def __init__(self, engine: Engine, service: str, folder: Path | None, *, one_off: bool = False) -> None:
        self.name = f"demo_{service}_1"
        self.status = "running"
        self.labels = {
            "com.docker.compose.project": "demo",
            "com.docker.compose.service": service,
            "com.docker.compose.oneoff": str(one_off),
        }
        mounts = [] if folder is None else [{"Source": str(folder), "Destination": str(folder)}]
        self.attrs: dict[str, Any] = {"Mounts": mounts, "RestartCount": 0}
        self.attrs["State"] = {"Status": "running", "Health": {"Status": "healthy"}}
        self._engine = engine

    def logs(self, **_options: object) -> bytes:
        return b"its last line\n"

    def remove(self, **_options: object) -> None:
        self._engine.all.remove(self)


class Engine:
    """An engine with containers and nothing else. `looked` is called at each look for the node host."""

    def __init__(self) -> None:
        self.all: list[Container] = []
        self.containers = SimpleNamespace(list=self._list)
        self.networks = self.volumes = SimpleNamespace(list=lambda **_options: [])
        self.images = SimpleNamespace(get=lambda _name: None)
        self.looked = lambda: None

    def add(self, *services: str, folder: Path | None = None) -> None:
        self.all += [Container(self, service, folder) for service in services]

    def _list(self, filters: dict[str, Any], **_options: object) -> list[Container]:
        wanted = filters["label"] if isinstance(filters["label"], list) else [filters["label"]]
        if "com.docker.compose.service=node" in wanted:
            self.looked()
        pairs = [label.partition("=")[::2] for label in wanted]
        return [each for each in self.all if all(each.labels.get(name) == value for name, value in pairs)]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine of this box."""
    made = Engine()
    for module in (composing, live, stack):
        monkeypatch.setattr(module, "connect", lambda: made)
    monkeypatch.setattr(live, "_LOOK", 0)
    monkeypatch.setattr(stack, "_LOOK", 0)
    return made


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the calls of Compose, whose `collect` fails when the folder holds a file `broken`."""
    tools, file = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    file.touch()
    program = tools / "docker-compose"
    program.write_text(
        f'#!/bin/sh\nenv=$2\nshift 6\necho "$*" >>{file}\n'
        f'case "$*" in *collect*) test ! -e {tmp_path}/broken;;\n'
        f'*up*) test ! -x {tmp_path}/up || {tmp_path}/up "$env";; esac\n'
    )
    program.chmod(0o755)
    for name in ("sh", "test"):
        (tools / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.chdir(tmp_path)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def run(root: Path) -> RunDir:
    made = make(root)
    made.logs.mkdir(exist_ok=True)
    return made


def make(root: Path) -> RunDir:
    return create_project_run(load_spec(SPEC), root, SystemClock(), images={}, environment={})


def called(calls: Path) -> list[str]:
    return [line.split(" ", 1)[0] for line in calls.read_text().splitlines()]


def record(run: RunDir, state: str) -> None:
    write_private_json(run.path / "record/runtime.json", {"runs": [{"t0": 1.0, "state": state, "stopped_at": 2.0}]})


def test_up_on_a_run_that_is_graded_waits_for_its_report(run, root, engine, calls, capsys):
    engine.add("node", "board", folder=run.path)
    (run.path / ENDING).touch()
    looks = []

    def looked() -> None:
        looks.append(1)
        if len(looks) == 20:
            record(run, "finished")
            (run.path / ENDED).touch()

    engine.looked = looked
    bring_up(SPEC, {}, Path(".env"), root)
    said = capsys.readouterr().out
    assert "is over; waiting for its grades and its report" in said
    assert f"{run.run_id} is over; `agensh report {run.run_id}` shows what it did" in said
    assert "http://" not in said
    assert called(calls) == []  # the services stay up to be looked at, and nothing is started


def test_up_whose_run_gets_to_its_end_meanwhile_does_not_wait_for_health(run, engine, calls, capsys, monkeypatch):
    engine.add(*stack.SERVICES, "node", folder=run.path)
    node = engine.all[-1]
    node.status = "exited"
    node.attrs["State"]["Health"]["Status"] = "unhealthy"
    record(run, "finished")

    def looked() -> None:
        if node.status == "exited" and "node" in calls.read_text():
            (run.path / ENDING).touch()  # what the node host does, instead of answering
            node.status = "running"
        elif (run.path / ENDING).exists():
            (run.path / ENDED).touch()

    engine.looked = looked
    (run.path / BOOT_FILE).write_text("first\n")
    made = stack.Stack(run, lambda _text: None, {})
    monkeypatch.setattr(made, "provision", lambda _compose: None)
    composing.start_stack(made)
    assert "is over; waiting for its grades" in capsys.readouterr().out


def test_networks_that_another_project_takes_at_the_same_moment_are_chosen_anew(run, engine, calls, tmp_path):
    engine.add(*stack.SERVICES, folder=run.path)
    taken = SimpleNamespace(name="other_team", attrs={"IPAM": {"Config": [{"Subnet": "198.18.0.0/23"}]}})
    refuse = tmp_path / "up"
    refuse.write_text(
        '#!/bin/sh\nwhile read -r line; do case "$line" in\n*=198.18.1.0/24) echo "ERROR: Pool overlaps with other one '
        'on this address space"; exit 1;; esac; done <"$1"\n'
    )
    refuse.chmod(0o755)
    listings = iter([[], [taken]])
    engine.networks = SimpleNamespace(list=lambda **_options: next(listings))
    made = stack.Stack(run, lambda _text: None, {"AGENSH_NETWORKS": "198.18.0.0/15"})
    compose = made._start(["mysql"])
    assert called(calls) == ["up", "up"]
    assert "AGENSH_SUBNET_TEAM=198.18.3.0/24" in compose.env_file.read_text()
    engine.networks = SimpleNamespace(list=lambda **_options: [])
    with pytest.raises(AgenshError, match="Pool overlaps"):
        made._start(["mysql"])
    assert called(calls) == ["up"] * 7
    refuse.write_text("#!/bin/sh\necho other; exit 1\n")
    with pytest.raises(AgenshError, match="other"):
        made._start(["mysql"])
    assert called(calls) == ["up"] * 8


def test_a_run_that_is_graded_is_left_alone_by_report_and_resume_all_does_not_wait(run, engine, calls, root, capsys):
    engine.add("node", folder=run.path)
    (run.path / ENDING).touch()
    assert refresh(run, run.info()) == f"{run.run_id} is being collected and graded"
    composing.go_on_all(root)
    assert "its node host collects and grades it" in capsys.readouterr().out


def test_a_run_that_was_stopped_while_it_was_graded_can_go_on(run, root, engine, calls, monkeypatch, capsys):
    record(run, "finished")
    monkeypatch.setattr(sys, "argv", ["agensh", "status", "--runs", str(root)])
    assert app.run() == 0
    assert "Go on with" not in capsys.readouterr().out
    (run.path / ENDING).touch()
    assert app.run() == 0
    assert f"Go on with: agensh resume {run.path}" in capsys.readouterr().out


def test_a_node_host_that_fails_again_and_again_in_the_end_is_told_of(run, root, engine, calls):
    engine.add("node", folder=run.path)
    (run.path / ENDING).touch()

    def looked() -> None:
        engine.all[0].attrs["RestartCount"] += 1

    engine.looked = looked
    with pytest.raises(AgenshError, match=r"the end of .* fails; `agensh logs node` says why"):
        go_on(run)


def test_restarts_of_former_days_are_no_failure_of_a_service_and_new_ones_are(run, engine, calls, monkeypatch):
    engine.add("mysql", folder=run.path)
    attrs = engine.all[0].attrs
    attrs["RestartCount"] = 3
    made = stack.Stack(run, lambda _text: None, {})
    looks = 0

    def healthy_at_last(container: Container) -> Container:
        nonlocal looks
        looks += 1
        attrs["State"]["Health"]["Status"] = "healthy" if looks == 5 else "starting"
        return container

    find = made._find
    monkeypatch.setattr(made, "_find", lambda service: healthy_at_last(find(service)))
    made.wait_healthy(["mysql"])
    assert looks == 5

    def restarted(container: Container) -> Container:
        attrs["RestartCount"] += 1
        attrs["State"]["Health"]["Status"] = "starting"
        return container

    monkeypatch.setattr(made, "_find", lambda service: restarted(find(service)))
    with pytest.raises(AgenshError, match=r"^mysql: it ended: its last line"):
        made.wait_healthy(["mysql"])


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to their owner by root alone")
def test_a_file_that_goes_away_while_files_are_given_back_is_no_failure(run, monkeypatch):
    os.chown(run.path, 12345, 12345)
    walk = os.walk

    def walk_late(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        yield str(folder), [], [".report.json.gone"]
        yield from walk(folder)

    monkeypatch.setattr(os, "walk", walk_late)
    ending.give_back(run)
    assert run.run_file.stat().st_uid == 12345
    assert (run.path / "workers").stat().st_uid == 0


def test_one_command_at_a_time(run, root, engine, calls):
    engine.add("node", folder=run.path)
    with hold_command_lock(run):
        for command in (
            lambda: bring_up(SPEC, {}, Path(".env"), root),
            lambda: take_down(root, None),
            lambda: clean_up(root, None),
            lambda: provision_again(root, None),
            lambda: go_on(run),
        ):
            with pytest.raises(RunBusy, match=rf"another command \(process {os.getpid()}\) is at work on {run.run_id}"):
                command()
    assert called(calls) == []


def test_sigterm_interrupts_as_ctrl_c_does_and_leaves_no_lock(run, engine, calls):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), composing._at_work(run):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
    with hold_command_lock(run):
        pass


def test_an_interrupted_command_says_so_and_has_failed(run, root, engine, calls, monkeypatch, capsys):
    engine.looked = lambda: os.kill(os.getpid(), signal.SIGTERM)
    engine.add("node", folder=run.path)
    (run.path / ENDING).touch()
    monkeypatch.setattr(composing, "_own_stack", lambda run: stack.Stack(run, lambda _text: None, {}))
    monkeypatch.setattr(sys, "argv", ["agensh", "down", "--runs", str(root)])
    assert app.run() == 1
    assert capsys.readouterr().err == "agensh: interrupted\n"


def test_two_that_make_a_run_at_once_make_one(tmp_path):
    """The second waits for the first, and sees what it has made."""
    script = (
        "import sys; from pathlib import Path; from agensh.launch.lock import alone_in\n"
        "with alone_in(Path(sys.argv[1])):\n"
        "    print('in', flush=True); sys.stdin.readline()\n"
        "    Path(sys.argv[1], 'made').touch()\n"
    )
    folder = tmp_path / "new" / "runs"
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "in\n"
        first.stdin.write("\n")
        first.stdin.flush()
        with alone_in(folder):
            assert (folder / "made").exists()


def test_a_folder_that_cannot_be_made_is_the_business_of_who_writes(tmp_path):
    (tmp_path / "file").touch()
    with alone_in(tmp_path / "file" / "runs"):
        pass


def test_down_stops_all_although_the_record_cannot_be_collected(run, root, engine, calls, tmp_path):
    engine.add("gitea", "board", "node", folder=run.path)
    (run.path / BOOT_FILE).write_text("first\n")
    (tmp_path / "broken").touch()
    with pytest.raises(AgenshError, match=r"all is stopped, but the record could not be collected \(compose run"):
        take_down(root, None)
    assert called(calls) == ["stop", "run", "down"]


def test_before_the_node_hosts_first_start_and_after_the_end_nothing_is_collected(run, root, engine, calls):
    engine.add("gitea", "board", folder=run.path)
    take_down(root, None)
    assert called(calls) == ["down"]
    (run.path / BOOT_FILE).write_text("first\n")
    (run.path / ENDED).touch()
    take_down(root, None)
    assert called(calls) == ["down", "down"]


def test_clean_keeps_the_record_of_a_team_at_work(run, root, engine, calls):
    engine.add("gitea", "board", "node", folder=run.path)
    (run.path / BOOT_FILE).write_text("first\n")
    clean_up(root, None)
    assert called(calls) == ["stop", "run", "down"]
    assert "down -v" in calls.read_text()
    assert (run.path / "logs/node.jsonl").read_text() == "its last line\n"
    assert (run.path / ENDED).exists()


def test_what_a_killed_command_left_of_the_short_services_is_removed(run, root, engine, calls):
    engine.add("gitea", "board", folder=run.path)
    engine.all.append(Container(engine, "provision", run.path, one_off=True))
    (run.path / BOOT_FILE).write_text("first\n")
    take_down(root, None)
    assert [each.name for each in engine.all] == ["demo_gitea_1", "demo_board_1"]


def test_clean_removes_networks_that_compose_has_left_and_those_alone(run, root, engine, calls):
    removed, asked = [], []

    class Network:
        def __init__(self, name: str) -> None:
            self.name = name
            self.attrs: dict[str, Any] = {"IPAM": {"Config": None}}

        def remove(self) -> None:
            assert called(calls)[-1] == "down"  # Compose has had its turn
            removed.append(self.name)
            raise NotFound("it has gone meanwhile")

    def listed(filters: dict[str, str] | None = None) -> list[Network]:
        if filters is None:
            return [Network("bridge"), Network("demo_team")]
        asked.append(filters)
        return [Network("demo_team"), Network("demo_services")]

    engine.networks = SimpleNamespace(list=listed)
    clean_up(root, None)
    assert removed == ["demo_team", "demo_services"]
    assert asked == [{"label": "com.docker.compose.project=demo"}]
    assert (run.path / ENDED).exists()


def test_an_earlier_run_does_not_touch_the_project_of_a_later_one(run, root, engine, calls):
    (run.path / ENDED).touch()
    later = make(root)
    engine.add("node", folder=later.path)
    for command in (take_down, clean_up):
        with pytest.raises(UsageError, match=f"has nothing in project demo any more: {later.path} has taken it"):
            command(root, run.run_id)
    elsewhere = make(root.parent / "elsewhere")
    engine.all[0].attrs["Mounts"] = [{"Source": str(elsewhere.path), "Destination": str(elsewhere.path)}]
    with pytest.raises(UsageError, match=f"{elsewhere.path} has taken it"):
        clean_up(root, later.run_id)
    assert called(calls) == []


def test_a_run_folder_that_was_moved_is_named_with_its_place(run, root, engine, calls):
    moved = root.parent / "moved" / run.run_id
    moved.parent.mkdir()
    run.path.rename(moved)
    with pytest.raises(UsageError, match=rf"^run: '{moved}' cannot go on here: it was made at '{run.path}'"):
        go_on(RunDir(moved))
    link = root.parent / "link"
    moved.rename(run.path)
    link.symlink_to(root)  # the same folder by another name
    stack.Stack(RunDir(link / run.run_id), lambda _text: None, {})._check_place()


def test_a_run_is_over_when_its_data_was_removed_meanwhile(run, root, engine, calls):
    engine.add("node", folder=run.path)
    (run.path / ENDING).touch()
    engine.looked = lambda: (run.path / ENDED).touch()
    with pytest.raises(AgenshError, match=r"is over \(new\): its data was removed meanwhile"):
        go_on(run)
    assert json.loads(run.run_file.read_text())["run_id"] == run.run_id
