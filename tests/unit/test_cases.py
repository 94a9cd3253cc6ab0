"""The case format, and answering cases by a reference."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from agensh.cases import AnsweredCase, Case, CaseError, dump_cases, generate_cases, parse_cases, read_cases
from agensh.runs.cases import answer, run_all
from agensh.trial import STERILE_ENV, Limits


def program(folder: Path, text: str, name: str = "reference") -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_case_survives_the_round_trip_with_bytes_that_are_not_utf8() -> None:
    case = Case("wc-0001", ("wc", "-l", "f\udcff"), "caf\u00e9 \udc80\x00\n", {"d/f\udcff": "\udcfe"}, "wc")
    answered = AnsweredCase.of(case, "1 \udc80\n", 3, check_stderr_nonempty=True)

    assert parse_cases(Case, dump_cases([case]).split("\n")) == [case]
    assert parse_cases(AnsweredCase, dump_cases([answered]).split("\n")) == [answered]
    assert dump_cases([case]).isascii()


def test_the_documented_line_is_read() -> None:
    line = '{"id": "wc-0007", "args": ["wc", "-l", "f1"], "stdin": null, "files": {"f1": "one\\n"}, "group": "wc"}'

    assert parse_cases(Case, [line]) == [Case("wc-0007", ("wc", "-l", "f1"), None, {"f1": "one\n"}, "wc")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "line 1: Every case needs an id"),
        ({"args": "wc"}, "Case a: args must be a list"),
        ({"args": ["a\0b"]}, "without NUL"),
        ({"stdin": 3}, "Case a: stdin must be text or null, not 3"),
        ({"files": {"../x": ""}}, "'../x' must stay inside"),
        ({"files": {"/etc/x": ""}}, "'/etc/x' must stay inside"),
        ({"files": {"x": 1}}, "files must map names to texts"),
        ({"code": True}, "code must be a whole number, not True"),
        ({"stdout": None}, "stdout must be text, not None"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"check_stderr_nonempty": 1}, "must be true or false, not 1"),
    ],
)
def test_what_is_wrong_with_a_case_is_named(change: dict[str, object], message: str) -> None:
    data = {"id": "a", "args": ["wc"], "stdin": None, "files": {}, "group": "wc", "stdout": "", "code": 0} | change

    with pytest.raises(CaseError, match=message.replace("(", r"\(")):
        parse_cases(AnsweredCase, [json.dumps(data)])


def test_an_id_that_occurs_twice_and_a_broken_line_name_the_line(tmp_path: Path) -> None:
    line = json.dumps({"id": "a", "args": []})
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{line}\n\n{line}\n")

    with pytest.raises(CaseError, match=r"cases\.jsonl, line 3: the id a occurs twice"):
        read_cases(Case, file)
    with pytest.raises(CaseError, match="line 2: not JSON"):
        parse_cases(Case, [line, "{"])
    with pytest.raises(CaseError, match="cannot be read"):
        read_cases(Case, tmp_path / "none")


def test_the_reference_answers_in_a_clean_folder_and_a_sterile_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "must not be seen")
    reference = program(tmp_path, "#!/bin/sh\nls -A\nenv | sort | grep -v -e ^PWD= -e ^_= -e ^OLDPWD=\ncat\nexit 3\n")
    cases = [Case("1", (), "in\n", {"a": "", "d/b": ""}), Case("2", (), None, {"c": ""})]

    first, second = answer(cases, reference)

    env = "".join(f"{name}={STERILE_ENV[name]}\n" for name in sorted(STERILE_ENV))
    assert first == AnsweredCase.of(cases[0], f"a\nd\n{env}in\n", 3)
    assert second == AnsweredCase.of(cases[1], f"c\n{env}", 3)


def test_a_case_that_is_answered_differently_each_time_is_refused(tmp_path: Path) -> None:
    reference = program(tmp_path, "#!/bin/sh\necho $$\n")

    with pytest.raises(CaseError, match="Case x: the reference answered differently the second time"):
        answer([Case("x", ())], reference)


def test_a_reference_that_hangs_or_floods_is_refused(tmp_path: Path) -> None:
    hang = program(tmp_path, "#!/bin/sh\nsleep 60\n", "hang")
    flood = program(tmp_path, "#!/bin/sh\nexec yes\n", "flood")

    with pytest.raises(CaseError, match="ran out of time"):
        answer([Case("x", ())], hang, limits=Limits(seconds=0.2))
    with pytest.raises(CaseError, match="wrote too much"):
        answer([Case("x", ())], flood, limits=Limits(output=10_000))


def test_input_larger_than_a_pipe_is_fed_and_may_be_left_unread(tmp_path: Path) -> None:
    text = "x" * 300_000 + "\n"
    count, ignore = (
        program(tmp_path, "#!/bin/sh\nwc -c\n", "count"),
        program(tmp_path, "#!/bin/sh\nhead -c 1\n", "ignore"),
    )

    assert [outcome.stdout for outcome in run_all(count, [Case("1", (), text)])] == [b"300001\n"]
    assert [outcome.stdout for outcome in run_all(ignore, [Case("1", (), text)])] == [b"x"]


def test_a_folder_a_program_locked_is_cleared_for_the_next_case(tmp_path: Path) -> None:
    lock = program(tmp_path, "#!/bin/sh\nls -A\nmkdir d && touch d/x && chmod 0 d\nchmod 500 .\n")

    outcomes = run_all(lock, [Case("1", ()), Case("2", ())], jobs=1)

    assert [outcome.stdout for outcome in outcomes] == [b"", b""]


def test_a_case_script_is_run_and_its_failure_is_told(tmp_path: Path) -> None:
    script = tmp_path / "cases.py"
    script.write_text("import json, sys\nprint(json.dumps({'id': sys.argv[1], 'args': []}))\n")
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no seed')\n")

    assert generate_cases(script, "seven") == [Case("seven", ())]
    with pytest.raises(CaseError, match=r"broken\.py ended with 1: no seed"):
        generate_cases(broken)
