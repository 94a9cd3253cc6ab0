"""What a person is told of the provider's answer to the key, and of workers that are parked."""

from __future__ import annotations

from pathlib import Path

import pytest

from agensh.cli.parked import remedies
from agensh.clock import SystemClock
from agensh.errors import AgenshError
from agensh.launch.compose.project import create_project_run
from agensh.launch.compose.provider import judge
from agensh.launch.create import create_run
from agensh.rundir import RunInfo, WorkerSecrets
from agensh.spec import GatewaySection, load_spec
from router.workspace import environment, prepare

EXAMPLE = Path(__file__).parents[2] / "team.example.toml"
SECTION = GatewaySection(base_url="https://api.example.com/v1", api_key_env="MY_KEY")
OWN = WorkerSecrets(
    forge_password="a", forge_token="b", chat_token="c", chat_user_id="d", board_token="e", mcp_token="f"
)
BODY = '{"error": {"message": "Incorrect API key provided: sk-***.", "code": "invalid_api_key"}}'


def contained(root: Path) -> RunInfo:
    run = create_project_run(
        load_spec(EXAMPLE), root, SystemClock(), images={}, environment={"AGENSH_PROVIDER_KEY": "sk-x"}
    )
    return run.info()


def test_a_refused_key_is_one_sentence_with_what_to_do() -> None:
    with pytest.raises(AgenshError) as raised:
        judge(SECTION, {"status": 401, "said": BODY}, "agensh up")
    assert str(raised.value) == (
        "gateway: https://api.example.com/v1 refuses the key in MY_KEY (401: Incorrect API key provided: sk-***); put "
        "it right in .env and call `agensh up` again."
    )
    with pytest.raises(AgenshError, match=r"refuses requests without a key \(401: no reason given\)"):
        judge(GatewaySection(base_url="http://h/v1", auth="none"), {"status": 401, "said": ""}, "agensh up")


@pytest.mark.parametrize("status", [200, 403, 404, 429, 500])
def test_what_does_not_say_that_the_key_is_wrong_holds_nobody_up(status: int) -> None:
    assert judge(SECTION, {"status": status, "said": "Missing scopes: api.model.read"}, "agensh up") == ""


def test_a_provider_that_is_out_of_reach_is_told_and_holds_nobody_up() -> None:
    said = judge(SECTION, {"status": 0, "said": "Cannot connect to host"}, "agensh up")
    assert said.startswith("gateway: https://api.example.com/v1 cannot be reached (Cannot connect to host); ")
    assert "\n" not in said


def test_each_kind_of_reason_has_one_remedy(tmp_path: Path) -> None:
    info = contained(tmp_path)
    auth, spent = "auth: 401 Unauthorized: no", "quota_spent: The team's budget of $5 is spent."
    (said,) = remedies(info, {"demo-worker1": auth, "demo-worker2": auth})
    assert said == (
        "The provider refuses the key: put it right in AGENSH_PROVIDER_KEY in .env, then call `agensh up` again."
    )
    assert len(remedies(info, {"demo-worker1": auth, "demo-worker2": spent})) == 2
    assert remedies(info, {"demo-worker1": "It died: auth: 401"}) == []
    local = create_run(load_spec(EXAMPLE), tmp_path, SystemClock()).info()
    (said,) = remedies(local, {"demo-worker1": auth})
    assert said.endswith(f"in the variable AGENSH_PROVIDER_KEY, then stop and `agensh resume {local.run_id}`.")


def test_the_path_of_an_image_is_not_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/of/this/machine")
    monkeypatch.setenv("AGENSH_PROVIDER_KEY", "sk-x")
    spec = load_spec(EXAMPLE)
    inside = create_project_run(spec, tmp_path, SystemClock(), images={})
    outside = create_run(spec, tmp_path, SystemClock())
    for run, path in ((inside, None), (outside, "/of/this/machine")):
        space = prepare(run, run.info(), "demo-worker1", OWN)
        assert environment(run.info(), space, OWN).get("PATH") == path
