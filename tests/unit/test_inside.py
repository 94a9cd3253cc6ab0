"""Writing into a folder that somebody else can change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.base import WorkerLaunch
from adapters.claude_code.launching import CONFIG, write_config
from adapters.codex.config import write_configuration
from adapters.hook_file import hook_command
from agensh.clock import SystemClock
from agensh.inside import make_folder_inside, remove_inside, write_private_inside
from agensh.launch.create import create_run
from agensh.launch.examples import example
from agensh.rundir import WorkerSecrets
from agensh.spec import load_spec
from router.workspace import TOKEN_FILE, prepare

NAMES = ("forge_password", "forge_token", "chat_token", "chat_user_id", "board_token", "mcp_token")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is none of the worker's."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "worker" / "home"
    folder.mkdir(parents=True)
    return folder


def launch_in(home: Path) -> WorkerLaunch:
    log = home.parent.parent / "log"
    work, tmp = home.parent / "work", home.parent / "tmp"
    return WorkerLaunch("t-worker1", home, work, tmp, log, "http://h/mcp", "token", hooks_url="http://h/hooks/x")


def test_a_file_is_written_whole_and_private(home):
    file = write_private_inside(home, "a/b/name", "text")
    assert file == home / "a" / "b" / "name"
    assert file.read_text() == "text"
    assert file.stat().st_mode & 0o777 == 0o600
    write_private_inside(home, "a/b/name", "other")
    assert file.read_text() == "other"
    assert [path.name for path in file.parent.iterdir()] == ["name"]


@pytest.mark.parametrize("place", ["a", "a/b", "."])
def test_a_link_in_the_way_leads_nowhere(home, elsewhere, place):
    link = home / place
    if place == ".":
        home.rmdir()
        link = home
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    write_private_inside(home, "a/b/name", "text")
    assert not link.is_symlink()
    assert (home / "a" / "b" / "name").read_text() == "text"
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_the_file_is_replaced(home, elsewhere):
    kept = elsewhere / "kept"
    kept.write_text("kept")
    (home / "name").symlink_to(kept)
    write_private_inside(home, "name", "text")
    assert kept.read_text() == "kept"
    assert not (home / "name").is_symlink()


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file(home):
    (home / "a").write_text("a file")
    (home / "name" / "full").mkdir(parents=True)
    write_private_inside(home, "a/name", "text")
    write_private_inside(home, "name", "text")
    assert (home / "name").read_text() == "text"
    (aside,) = home.glob("name.*")
    assert (aside / "full").is_dir()


def test_removing_does_not_follow_a_link(home, elsewhere):
    (elsewhere / "name").write_text("kept")
    (home / "a").symlink_to(elsewhere)
    remove_inside(home, "a/name")
    assert (elsewhere / "name").exists()
    write_private_inside(home, "a/name", "text")
    remove_inside(home, "a/name")
    remove_inside(home, "a/name")
    assert not (home / "a" / "name").exists()


@pytest.mark.parametrize("inside", ["/etc/name", "../name", "a/../../name"])
def test_a_name_outside_is_refused(home, inside):
    with pytest.raises(ValueError, match="does not lie inside"):
        write_private_inside(home, inside, "text")
    with pytest.raises(ValueError, match="does not lie inside"):
        make_folder_inside(home, inside)


def test_no_file_of_an_adapter_follows_a_link_of_the_worker(home, elsewhere):
    for name in (".config", ".codex", ".copilot"):
        (home / name).symlink_to(elsewhere)
    launch = launch_in(home)
    write_config(launch)
    write_configuration(launch)
    hook_command(launch, "copilot")
    assert list(elsewhere.iterdir()) == []
    assert "mcpServers" in json.loads((home / CONFIG).read_text())


@pytest.mark.parametrize("breaking", ["home is a link", "home is a file", ".config is a link", "a folder"])
def test_a_worker_cannot_keep_its_host_from_starting_nor_lead_it_astray(tmp_path, elsewhere, breaking):
    run = create_run(load_spec(example("textutils") / "team.toml"), tmp_path / "runs", SystemClock())
    info = run.info()
    (name, *_) = info.spec.worker_names
    secrets = WorkerSecrets(**dict.fromkeys(NAMES, "x"))
    home = prepare(run, info, name, secrets).home
    if breaking.startswith("home"):
        home.rename(home.parent / "moved")
        if breaking.endswith("link"):
            home.symlink_to(elsewhere)
        else:
            home.write_text("")
    elif breaking.startswith(".config"):
        (home / ".config").rename(home / "moved")
        (home / ".config").symlink_to(elsewhere)
    else:
        (home / ".gitconfig").unlink()
        (home / ".gitconfig").mkdir()
    space = prepare(run, info, name, secrets)
    assert (space.home / TOKEN_FILE).read_text() == "x\n"
    assert (space.home / ".gitconfig").is_file()
    assert list(elsewhere.iterdir()) == []
