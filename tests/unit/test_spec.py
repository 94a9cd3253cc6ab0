from __future__ import annotations

import re
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from agensh.errors import SpecError
from agensh.launch.examples import example
from agensh.spec import TeamSpec, load_spec, parse_duration, parse_spec

REBUILD = {
    "team": {"name": "demo", "workers": 2},
    "task": {"kind": "rebuild", "goal": "goal.md", "reference": "reference"},
}
REPO = {"team": {"name": "demo"}, "task": {"kind": "repo", "goal": "goal.md", "acceptance": "make test"}}


def changed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    section, key = path.split(".")
    return base | {section: base.get(section, {}) | {key: value}}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6h", 21600), ("1h30m", 5400), ("45s", 45), ("200ms", 0.2), ("1.5m", 90), ("1h 5s", 3605), (12, 12), (0.5, 0.5)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "6x", "-5s", "5s later", True, None, -1])
def test_bad_durations(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_the_defaults_are_the_published_set_up():
    clock = parse_spec(REBUILD).clock
    assert (clock.budget, clock.stagger, clock.ramp, clock.stagger_after_ramp) == (21600, 30, 3600, 3)
    assert (clock.idle, clock.wind_down, clock.last_call, clock.speed) == (600, 2700, 300, 1)


@pytest.mark.parametrize(
    ("base", "path", "value", "said"),
    [
        (REBUILD, "team.workers", 0, r"team\.workers: 0 is not allowed: .*greater than or equal to 1"),
        (REBUILD, "team.workers", 1025, r"team\.workers: 1025 is not allowed: .*less than or equal to 1024"),
        (REBUILD, "team.name", "Demo", r"team\.name: 'Demo' is not allowed.*a-z"),
        (REBUILD, "team.name", "demo-", r"team\.name: 'demo-' is not allowed"),
        (REBUILD, "team.name", "d", r"team\.name: 'd' is not allowed; use 2 to 40 of a-z"),
        (
            REBUILD,
            "team.name",
            "d" * 33,
            r"too long for 2 workers; d+-worker2 would be an account of 41.*Use 32 at most",
        ),
        (REBUILD, "team.colour", "red", r"team\.colour: no such key"),
        (REBUILD, "task.kind", "rewrite", r"task\.kind: 'rewrite' is not allowed: .*'rebuild' or 'repo'"),
        (REBUILD, "task.reference", None, r"task\.reference: missing; a task of kind \"rebuild\""),
        (REBUILD, "task.acceptance", "true", r"task\.acceptance: not allowed for kind \"rebuild\""),
        (REPO, "task.acceptance", None, r"task\.acceptance: missing; a task of kind \"repo\""),
        (REPO, "task.cases", "cases.py", r"task\.cases: not allowed for kind \"repo\""),
        (REBUILD, "clock.budget", "6x", r"clock\.budget: '6x' is not allowed: expected a duration"),
        (REBUILD, "clock.budget", 0, r"clock\.budget: 0 is not allowed"),
        (REBUILD, "clock.last_call", "2h", r"clock\.last_call: 7200s comes before wind_down"),
        (REBUILD, "clock.speed", 0, r"clock\.speed: 0 is not allowed: .*greater than 0"),
        (REBUILD, "delivery.notice_chars", 10, r"delivery\.notice_chars: 10 is not allowed"),
    ],
)
def test_every_mistake_names_key_and_value(base, path, value, said):
    with pytest.raises(SpecError) as caught:
        parse_spec(changed(base, path, value))
    assert re.search(said, str(caught.value))


def test_all_mistakes_are_listed_at_once():
    data = changed(changed(REBUILD, "team.workers", 0), "clock.speed", "fast")
    with pytest.raises(SpecError) as caught:
        parse_spec(data, source="team.toml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("team.toml: ") for line in lines)


def test_the_longest_name_of_a_team_depends_on_its_workers():
    for name, workers in (("d" * 32, 9), ("d" * 29, 1024)):
        assert len(parse_spec(REBUILD | {"team": {"name": name, "workers": workers}}).worker_names[-1]) == 40


@pytest.mark.parametrize("content", [b"\xffbuild it", None])
def test_a_goal_that_is_no_text_is_named(tmp_path, content):
    goal = tmp_path / "goal.md"
    goal.mkdir() if content is None else goal.write_bytes(content)
    (tmp_path / "team.toml").write_text(
        '[team]\nname = "demo"\n[task]\nkind = "repo"\ngoal = "goal.md"\nacceptance = "true"\n'
    )
    with pytest.raises(SpecError, match=r"task\.goal: 'goal\.md' cannot be read as a text in UTF-8: "):
        load_spec(tmp_path / "team.toml")


def test_a_missing_section_is_named():
    with pytest.raises(SpecError, match="task: missing"):
        parse_spec({"team": {"name": "demo"}})


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), ("[team\n", "not valid TOML"), (b"\xff\xfe", "cannot be read")],
)
def test_an_unreadable_file_is_one_sentence(tmp_path, content, said):
    file = tmp_path / "team.toml"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        file.write_text(content)
    with pytest.raises(SpecError, match=said):
        load_spec(file)


def test_paths_are_relative_to_the_file_and_must_exist(tmp_path):
    (tmp_path / "goal.md").write_text("goal")
    file = tmp_path / "team.toml"
    file.write_text('[team]\nname="team"\n[task]\nkind="repo"\ngoal="goal.md"\nacceptance="true"\n')
    assert load_spec(file).task.goal == tmp_path / "goal.md"
    file.write_text('[team]\nname="team"\n[task]\nkind="repo"\ngoal="none.md"\nacceptance="true"\n')
    with pytest.raises(SpecError, match=r"task\.goal: 'none\.md' does not exist"):
        load_spec(file)


def test_overrides_win_over_the_file_and_are_checked():
    file = example("textutils") / "team.toml"
    spec = load_spec(file, {"team.workers": 3, "clock.speed": 600})
    assert (spec.team.workers, spec.clock.speed) == (3, 600)
    assert spec.worker_names == ["demo-worker1", "demo-worker2", "demo-worker3"]
    with pytest.raises(SpecError, match=r"team\.workers"):
        load_spec(file, {"team.workers": 0})


def test_a_resolved_spec_survives_json():
    spec = load_spec(example("textutils") / "team.toml")
    assert TeamSpec.model_validate_json(spec.model_dump_json()) == spec


def test_every_key_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "spec.md").read_text()
    for section, field in TeamSpec.model_fields.items():
        assert f"## `[{section}]`" in text
        # A section that a team may leave out is `Section | None`.
        (model,) = {kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType}
        assert issubclass(model, BaseModel)
        for key in model.model_fields:
            assert f"| `{key}` |" in text, f"{section}.{key} is not in docs/spec.md"
