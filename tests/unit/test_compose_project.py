"""The run folder of a team in containers, and what `agensh up` reads before it makes anything."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from agensh.cli.composing import open_run, read_environment
from agensh.errors import AgenshError, SpecError, UsageError
from agensh.launch.compose.preflight import (
    MIN_FREE,
    MOST_WORKERS,
    check_disk,
    check_name,
    check_size,
    loopback_ports,
)
from agensh.launch.compose.project import (
    ENDED,
    create_project_run,
    project_runs,
    renew_credential,
    worker_image,
    write_compose_env,
)
from agensh.rundir import RunDir
from agensh.spec import TeamSpec, load_spec, parse_spec
from tests.support.clock import ManualClock

ROOT = Path(__file__).parents[2]
KEY = "sk-not-a-real-key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make(spec: TeamSpec, root: Path, **environment: str) -> RunDir:
    return create_project_run(spec, root, ManualClock(), images={}, environment=environment)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> TeamSpec:
    """The example spec as a new user has it."""
    monkeypatch.delenv("AGENSH_PROVIDER_KEY", raising=False)
    return load_spec(ROOT / "team.example.toml")


def test_the_example_is_a_team_of_eight_behind_the_gateway(example: TeamSpec) -> None:
    assert example.team.workers == 8
    assert example.worker.harness == "codex"
    assert example.gateway is not None
    assert example.gateway.models == (example.worker.model,)
    named = read_environment(ROOT / ".env.example")
    assert example.gateway.api_key_env in named


def test_the_examples_variables_are_those_there_are() -> None:
    known = (ROOT / "compose/compose.yaml").read_text() + (ROOT / "agensh/launch/compose/engine.py").read_text()
    lines = (ROOT / ".env.example").read_text().splitlines()
    variables = [line.removeprefix("# ").partition("=") for line in lines if "=" in line]
    for name, _, value in variables:
        assert name == "AGENSH_PROVIDER_KEY" or (name in known and value in known), name


def test_another_task_image_or_version_is_another_image_of_workers(example: TeamSpec) -> None:
    container = example.container.model_copy(update={"task_image": "rust:1-bookworm"})
    worker = example.worker.model_copy(update={"options": {"version": "0.170.0"}})
    changed = [example.model_copy(update={"container": container}), example.model_copy(update={"worker": worker})]
    assert len({worker_image(spec) for spec in [example, *changed]}) == 3


def test_the_folder_has_copies_and_nothing_of_outside(example: TeamSpec, tmp_path: Path) -> None:
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    info = run.info()
    for path in (info.spec.task.goal, info.spec.task.repository, info.spec.task.reference, info.spec.task.cases):
        assert path is not None
        assert path.is_relative_to(run.path)
        assert path.exists()
    assert (run.path / "task/cases/generators/__init__.py").is_file()  # imported by the cases' script
    assert info.containers is not None
    assert info.containers.image == worker_image(example)
    assert re.fullmatch(r"agensh/worker-codex:local-[0-9a-f]{8}", worker_image(example))
    assert info.containers.network == "demo_team"
    assert str(ROOT) not in (run.path / "run.json").read_text()


def test_a_reference_that_is_a_script_can_be_read_and_a_binary_cannot(example: TeamSpec, tmp_path: Path) -> None:
    script = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY).info().spec.task.reference
    assert script is not None
    assert mode(script) == 0o555
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    task = example.task.model_copy(update={"reference": program})
    run = make(example.model_copy(update={"task": task}), tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    binary = run.info().spec.task.reference
    assert binary is not None
    assert mode(binary) == 0o111


def test_secrets_are_the_owners_alone_and_in_their_files_only(example: TeamSpec, tmp_path: Path) -> None:
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    assert mode(run.path) == mode(run.path / "secrets") == 0o700
    files = sorted(path.name for path in (run.path / "secrets").iterdir())
    assert files == ["gateway.env", "gitea.env", "mattermost.env", "mysql.env", "postgres.env", "postgres.sql"]
    for path in (run.path / "secrets.json", *(run.path / "secrets").glob("*.env")):
        assert mode(path) == 0o600
    assert (run.path / "secrets/gateway.env").read_text() == f"AGENSH_PROVIDER_KEY={KEY}\n"
    secrets = run.secrets()
    for secret in (KEY, secrets.forge_admin.password, secrets.board_admin, secrets.board_db, secrets.gateway_admin):
        assert secret
        assert secret not in (run.path / "run.json").read_text()
    assert KEY not in (run.path / "secrets.json").read_text()


def test_two_runs_share_no_secret(example: TeamSpec, tmp_path: Path) -> None:
    first, second = (make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY) for _ in range(2))
    one, other = first.secrets(), second.secrets()
    assert one.board_db != other.board_db
    assert one.forge_admin.password != other.forge_admin.password
    assert one.gateway_admin != other.gateway_admin


def test_a_missing_credential_leaves_no_folder(example: TeamSpec, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'AGENSH_PROVIDER_KEY' is not set"):
        make(example, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_task_that_cannot_be_copied_leaves_no_folder(example: TeamSpec, tmp_path: Path) -> None:
    task = example.task.model_copy(update={"goal": tmp_path / "gone.md"})
    with pytest.raises(AgenshError, match=r"task: .*gone\.md.* cannot be copied"):
        make(example.model_copy(update={"task": task}), tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_runs_folder_that_is_none_is_one_sentence(example: TeamSpec, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(AgenshError, match=r"^runs: no folder can be made in .*runs': Not a directory\.$"):
        make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)


@pytest.mark.parametrize("name", ["a:b", "a$b", "a #b", "a\nb"])
def test_a_path_that_compose_changes_is_refused_before_anything_is_made(
    example: TeamSpec, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=r"^runs: .* which Compose changes in a path; name another folder with --runs"):
        make(example, tmp_path / name, AGENSH_PROVIDER_KEY=KEY)
    assert list(tmp_path.iterdir()) == []


def test_another_key_reaches_a_run_that_goes_on(example: TeamSpec, tmp_path: Path) -> None:
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY="wrong")
    file = run.path / "secrets/gateway.env"
    renew_credential(run, example, {"AGENSH_PROVIDER_KEY": KEY})
    assert file.read_text() == f"AGENSH_PROVIDER_KEY={KEY}\n"
    renew_credential(run, example, {})
    assert file.read_text() == f"AGENSH_PROVIDER_KEY={KEY}\n"
    assert mode(file) == 0o600


@pytest.mark.parametrize("key", ["sk-a$b", "sk-'a'", 'sk-"a', "sk-a\\b"])
def test_a_key_that_compose_would_change_is_refused_and_not_shown(example: TeamSpec, tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=r"^AGENSH_PROVIDER_KEY: the value has .* Compose changes") as raised:
        make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=key)
    assert key not in str(raised.value)
    assert list((tmp_path / "runs").iterdir()) == []
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    with pytest.raises(UsageError, match=r"^AGENSH_PROVIDER_KEY: "):
        renew_credential(run, example, {"AGENSH_PROVIDER_KEY": key})


def test_a_key_file_becomes_a_variable_of_the_gateway(example: TeamSpec, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    assert example.gateway is not None
    gateway = example.gateway.model_copy(update={"api_key_env": "", "api_key_file": file})
    run = make(example.model_copy(update={"gateway": gateway}), tmp_path / "runs")
    kept = run.info().spec.gateway
    assert kept is not None
    assert (kept.api_key_env, kept.api_key_file) == ("AGENSH_PROVIDER_KEY", None)
    assert (run.path / "secrets/gateway.env").read_text() == f"AGENSH_PROVIDER_KEY={KEY}\n"


def test_a_team_without_a_gateway_has_no_word_of_one(tmp_path: Path) -> None:
    (tmp_path / "goal.md").write_text("Do it.")
    task = {"kind": "repo", "goal": str(tmp_path / "goal.md"), "acceptance": "true"}
    spec = parse_spec({"team": {"name": "plain"}, "task": task})
    run = make(spec, tmp_path / "runs")
    assert run.info().urls.gateway == ""
    assert run.secrets().gateway_admin == ""
    assert (run.path / "secrets/gateway.env").read_text() == ""


def test_the_run_that_goes_on_is_the_newest_that_has_not_ended(example: TeamSpec, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    assert open_run(root, "demo") is None
    clock = ManualClock()
    first = create_project_run(example, root, clock, images={}, environment={"AGENSH_PROVIDER_KEY": KEY})
    assert open_run(root, "demo") == first
    assert open_run(root, "other") is None
    (first.path / ENDED).touch()
    assert open_run(root, "demo") is None
    assert project_runs(root, "demo") == [first]


def test_compose_variables_are_private_and_of_one_line(example: TeamSpec, tmp_path: Path) -> None:
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    path = write_compose_env(run, {"B": "2", "A": "1"})
    assert path.read_text() == "A=1\nB=2\n"
    assert mode(path) == 0o600
    with pytest.raises(UsageError, match=r"^AGENSH_IMAGE_MYSQL: .*line break"):
        write_compose_env(run, {"AGENSH_IMAGE_MYSQL": "mysql\nAGENSH_RUN=/"})


def test_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.env"
    file.write_text("# a comment\n\nAGENSH_X=1\nexport AGENSH_Y = 'two words'\nAGENSH_Z=a=b\nAGENSH_W=file\n")
    monkeypatch.setenv("AGENSH_W", "shell")
    found = read_environment(file)
    assert {key: found[f"AGENSH_{key}"] for key in "XYZW"} == {"X": "1", "Y": "two words", "Z": "a=b", "W": "shell"}


@pytest.mark.parametrize("line", [KEY, "1X=2", f"my key={KEY}"])
def test_a_line_that_is_none_is_named_and_not_shown(line: str, tmp_path: Path) -> None:
    file = tmp_path / "my.env"
    file.write_text(f"AGENSH_X=1\n{line}\n")
    with pytest.raises(UsageError, match=r"line 2 is not NAME=value") as raised:
        read_environment(file)
    assert KEY not in str(raised.value)


def test_an_env_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--env-file: .* does not exist"):
        read_environment(tmp_path / "gone.env")
    file = tmp_path / "my.env"
    file.write_bytes(b"AGENSH_X=\xff\n")
    with pytest.raises(UsageError, match=r"^--env-file: .* cannot be read"):
        read_environment(file)


def test_ports() -> None:
    assert loopback_ports({}) == {"AGENSH_PORT_GITEA": 3000, "AGENSH_PORT_MATTERMOST": 8065, "AGENSH_PORT_BOARD": 8660}
    assert loopback_ports({"AGENSH_PORT_BOARD": "9000", "AGENSH_PORT_GITEA": ""})["AGENSH_PORT_BOARD"] == 9000


@pytest.mark.parametrize("text", ["x", "0", "65536", "-1", "80 "])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"^AGENSH_PORT_GITEA: .* is not a port"):
        loopback_ports({"AGENSH_PORT_GITEA": text})


def test_a_port_twice() -> None:
    with pytest.raises(UsageError, match=r"^AGENSH_PORT_MATTERMOST: 3000 is already"):
        loopback_ports({"AGENSH_PORT_MATTERMOST": "3000"})


@pytest.mark.parametrize(
    ("name", "said"),
    [("search", "Gitea keeps it"), ("api-tests", "names that begin with 'api'"), ("posters", "begin with 'post'")],
)
def test_a_name_that_a_service_keeps_for_itself_is_refused_before_anything_is_made(name: str, said: str) -> None:
    check_name("demo")
    check_name("research")
    with pytest.raises(UsageError, match=rf"^team\.name: '{name}' is not allowed: .*{said}"):
        check_name(name)


def test_a_team_is_as_large_as_its_network() -> None:
    check_size(MOST_WORKERS)
    with pytest.raises(UsageError, match=r"^team\.workers: 250 is not allowed: .* at most 249"):
        check_size(250)


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agensh.launch.compose.preflight.MIN_FREE", 1)
    check_disk(tmp_path / "a" / "b")
    monkeypatch.setattr("agensh.launch.compose.preflight.MIN_FREE", 1 << 60)
    with pytest.raises(AgenshError, match=r"^disk: .* GiB are free in .*--runs"):
        check_disk(tmp_path / "a" / "b")
    assert MIN_FREE >= 1 << 30


def test_run_json_is_json(example: TeamSpec, tmp_path: Path) -> None:
    run = make(example, tmp_path / "runs", AGENSH_PROVIDER_KEY=KEY)
    assert json.loads((run.path / "run.json").read_text())["urls"]["forge"] == "http://gitea:3000"
