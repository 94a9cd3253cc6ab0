from __future__ import annotations

import json
import stat

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


def test_a_password_needs_no_quoting() -> None:
    made = {new_password() for _ in range(100)}
    assert len(made) == 100
    assert all(len(word) == 48 and word.isalnum() for word in made), "no dash at the start: it would be an option"
