from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from agensh.errors import UsageError
from agensh.identity import (
    new_password,
    new_token,
    parse_worker_name,
    token_hash,
    token_matches,
    worker_name,
    write_private_json,
)
from agensh.rundir import new_run_dir


def test_names_round_trip():
    assert worker_name("pbench-team1", 12) == "pbench-team1-worker12"
    assert parse_worker_name("pbench-team1-worker12") == ("pbench-team1", 12)


@pytest.mark.parametrize(
    "name", ["worker1", "team-worker0", "Team-worker1", "team-worker01", "team-worker", "team-worker1 "]
)
def test_a_short_form_is_refused_with_its_value(name):
    with pytest.raises(UsageError, match=r"<team>-worker<n>") as caught:
        parse_worker_name(name)
    assert repr(name) in str(caught.value)


def test_tokens_differ_and_match_their_hash_only():
    one, two = new_token(), new_token()
    assert one != two
    assert token_matches(one, token_hash(one))
    assert not token_matches(two, token_hash(one))
    assert one not in token_hash(one)


def test_private_files_are_private_and_whole(tmp_path):
    file = tmp_path / "deep" / "secrets.json"
    write_private_json(file, {"a": 1})
    write_private_json(file, {"a": 2})
    assert json.loads(file.read_text()) == {"a": 2}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["secrets.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "secrets.json"
    write_private_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_private_json(file, {"a": object()})
    assert json.loads(file.read_text()) == {"a": 1}


def test_what_is_written_survives_a_power_cut(tmp_path, monkeypatch):
    """The file is on the disk before it gets its name, and the name when the call returns."""
    file = tmp_path / "secrets.json"
    write_private_json(file, {"a": 1})
    synced = []
    sync = os.fsync

    def noted(handle):
        synced.append((Path(f"/proc/self/fd/{handle}").readlink(), json.loads(file.read_text())["a"]))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write_private_json(file, {"a": 2})
    (of_file, of_folder) = synced
    assert of_file[0].name.startswith(".secrets.json.")
    assert of_file[1] == 1
    assert of_folder == (tmp_path, 2)


def test_a_new_run_folder_survives_a_power_cut(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))
    run = new_run_dir(tmp_path / "runs", "demo", 0.0)
    assert synced == [run.path.parent]


def test_a_password_needs_no_quoting() -> None:
    made = {new_password() for _ in range(100)}
    assert len(made) == 100
    assert all(len(word) == 48 and word.isalnum() for word in made), "no dash at the start: it would be an option"
