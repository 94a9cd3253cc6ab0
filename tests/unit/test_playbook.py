"""The scripted workers' playbook: revisions by defects, registration, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.scripted.playbook import PlaybookError, load

MAIN = """
[core]
title = "start"
dispatch = "src/dispatch.py"
source = "src/{tool}.py"
cases = "tests/{tool}.jsonl"

[[area]]
tool = "wc"
title = "count"
"""
DEFECTS = """
[[defect]]
fixed_in = 3
level = "wide"
summary = "third"
old = "three"
new = "3"

[[defect]]
fixed_in = 2
level = "basic"
summary = "second"
old = "two"
new = "2"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "playbook.toml": MAIN,
        "core/compile.sh": "#!/bin/sh\n",
        "core/src/dispatch.py": "TOOLS = {\n}\n",
        "core/src/__pycache__/x.pyc": "",
        "tools/wc.py": "one two three\n",
        "defects/wc.toml": DEFECTS,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_each_revision_has_the_defects_that_are_fixed_later(folder: Path) -> None:
    playbook = load(folder)

    assert [area.tool for area in playbook.areas] == ["wc"]
    assert playbook.revisions("wc") == 3
    assert [playbook.source("wc", revision) for revision in (1, 2, 3)] == [
        "one 2 3\n",
        "one two 3\n",
        "one two three\n",
    ]
    assert [defect.summary for defect in playbook.defects("wc", 1)] == ["second", "third"]
    assert [defect.summary for defect in playbook.defects("wc", 2)] == ["third"]
    assert playbook.defects("wc", 3) == ()
    assert playbook.source_path("wc") == "src/wc.py"
    assert playbook.cases_path("wc") == "tests/wc.jsonl"
    assert set(playbook.core_files()) == {"compile.sh", "src/dispatch.py"}


def test_a_tool_is_registered_once_before_the_closing_brace(folder: Path) -> None:
    playbook = load(folder)
    once = playbook.register("# first\nTOOLS = {\n}\n# last\n", "wc")

    assert once == '# first\nTOOLS = {\n    "wc": "tools.wc",\n}\n# last\n'
    assert playbook.register(once, "wc") == once
    assert playbook.register(once, "cut").splitlines()[2:4] == [
        playbook.dispatch_line("wc"),
        playbook.dispatch_line("cut"),
    ]
    with pytest.raises(PlaybookError, match=r"src/dispatch\.py has no line with"):
        playbook.register("TOOLS = {}\n", "wc")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("playbook.toml", "[core", r"playbook\.toml cannot be read"),
        ("playbook.toml", MAIN.replace('title = "count"', "title = 1"), r"\[\[area\]\]: title must be str, not 1"),
        ("playbook.toml", MAIN.replace("[core]", "[heart]"), r"\[core\]: title must be str, not None"),
        ("playbook.toml", MAIN.replace('"wc"', '"cut"'), r"no tools/cut\.py"),
        ("defects/wc.toml", DEFECTS.replace('"wide"', '"deep"'), "level must be one of basic, wide, not 'deep'"),
        ("defects/wc.toml", DEFECTS.replace("= 2", "= 1"), "fixed_in must be at least 2, not 1"),
        (
            "defects/wc.toml",
            DEFECTS.replace('"third"', f'"{"x" * 97}"'),
            "have 101 characters together; at most 100 fit",
        ),
        ("defects/wc.toml", DEFECTS + "colour = 1\n", "unknown field 'colour'"),
    ],
)
def test_what_is_wrong_with_a_playbook_is_named(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)

    with pytest.raises(PlaybookError, match=message):
        load(folder)


def test_a_defect_that_does_not_apply_and_wrong_arguments_are_named(folder: Path) -> None:
    playbook = load(folder)
    (folder / "tools/wc.py").write_text("one two two three\n")

    with pytest.raises(PlaybookError, match=r"the old text of 'second' occurs 2 times in revision 1, not once"):
        playbook.source("wc", 1)
    with pytest.raises(PlaybookError, match="wc has revisions 1 to 3, not 4"):
        playbook.source("wc", 4)
    with pytest.raises(PlaybookError, match="no tool 'cut'"):
        playbook.revisions("cut")
    with pytest.raises(PlaybookError, match="must be one of basic, wide, not 'deep'"):
        playbook.probes("wc", "deep", "1")
