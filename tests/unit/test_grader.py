"""The grader of rebuild tasks: whatever a submission does, the answer is a grade."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agensh.cases import AnsweredCase, dump_cases
from agensh.runs.grader import GradeError, export, grade, grade_commit
from agensh.trial import Limits

COMPILE = "#!/bin/sh\ncp program executable\nchmod +x executable\n"


def source(folder: Path, program: str, build: str = COMPILE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compile.sh").write_text(build)
    (folder / "program").write_text(program)
    return folder


def case(
    name: str, *args: str, stdout: str = "", code: int = 0, group: str = "g", stderr: bool = False
) -> AnsweredCase:
    return AnsweredCase(name, args, "in\n", {"f": "file\n"}, group, stdout, code, stderr)


def git(folder: Path, *args: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *args], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_cases_are_counted_by_group_and_failures_are_explained(tmp_path: Path) -> None:
    program = "#!/bin/sh\ncase $1 in cat) cat f -;; code) exit 3;; err) echo oops >&2;; *) echo other;; esac\n"
    cases = [
        case("1", "cat", stdout="file\nin\n"),
        case("2", "code", code=3, group="h"),
        case("3", "code", code=4, group="h"),
        case("4", "err", stderr=True),
        case("5", "x", stdout="this\n"),
        case("6", "x", stdout="other\n", stderr=True),
    ]

    result = grade(source(tmp_path / "s", program), cases)

    assert result.build_ok
    assert (result.passed, result.total, result.pass_rate) == (3, 6, 0.5)
    assert {name: (score.passed, score.total) for name, score in result.by_group.items()} == {"g": (2, 4), "h": (1, 2)}
    assert [(failure.id, failure.reason) for failure in result.failures] == [
        ("3", "exit code 3, expected 4"),
        ("5", "standard output differs"),
        ("6", "nothing on standard error"),
    ]
    assert (result.failures[1].expected, result.failures[1].got) == ("this\n", "other\n")
    assert json.loads(json.dumps(result.to_json()))["by_group"]["h"] == {"passed": 1, "total": 2}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 7\n", "broken\n\ncompile.sh ended with 7."),
        ("#!/bin/sh\nsleep 60\n", "compile.sh was stopped after 0.5 s."),
        ("#!/bin/sh\nexit 0\n", "compile.sh made no ./executable that can be run."),
        ("#!/bin/sh\nmkdir executable\n", "compile.sh made no ./executable that can be run."),
        ("#!/no/such/interpreter\n", "compile.sh ended with 12"),
    ],
)
def test_a_build_that_fails_scores_nothing_and_says_why(tmp_path: Path, build: str, reason: str) -> None:
    result = grade(source(tmp_path / "s", "", build), [case("1")], build_timeout=0.5)

    assert not result.build_ok
    assert (result.passed, result.total, result.pass_rate) == (0, 1, 0.0)
    assert reason in result.build_log


def test_a_source_without_compile_sh_scores_nothing(tmp_path: Path) -> None:
    result = grade(tmp_path, [case("1")])

    assert (result.build_ok, result.build_log) == (False, "The root has no compile.sh.")


def test_a_shipped_executable_is_removed_before_the_build(tmp_path: Path) -> None:
    folder = source(tmp_path / "s", "", "#!/bin/sh\ntest ! -e executable\n")
    (folder / "executable").write_text("#!/bin/sh\necho right\n")
    (folder / "executable").chmod(0o755)

    result = grade(folder, [case("1", stdout="right\n")])

    assert not result.build_ok
    assert result.passed == 0
    assert result.build_log.startswith("A shipped ./executable was removed")


def test_the_build_sees_no_secret_and_a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    build = COMPILE.replace("\n", '\ntest -z "$SECRET" && touch "$HOME/x" || exit 1\n', 1)

    assert grade(source(tmp_path / "s", "#!/bin/sh\n", build), [case("1")]).passed == 1


def test_a_program_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    program = f"#!/bin/sh\n(sleep 3; touch {marker}) &\nsleep 60\n"
    begin = time.monotonic()

    result = grade(source(tmp_path / "s", program), [case("1"), case("2")], limits=Limits(seconds=0.3))

    assert [failure.reason for failure in result.failures] == ["ran out of time", "ran out of time"]
    assert time.monotonic() - begin < 30
    left = subprocess.run(["pgrep", "-f", str(marker)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []


def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_case(tmp_path: Path) -> None:
    result = grade(source(tmp_path / "s", "#!/bin/sh\nsleep 50 &\necho done\n"), [case("1", stdout="done\n")])

    assert result.passed == 1


def test_too_much_output_is_cut_and_fails(tmp_path: Path) -> None:
    result = grade(source(tmp_path / "s", "#!/bin/sh\nyes\n"), [case("1")], limits=Limits(output=100_000))

    assert [failure.reason for failure in result.failures] == ["wrote too much"]
    assert len(result.failures[0].got) == 500


def test_a_program_cannot_take_all_memory(tmp_path: Path) -> None:
    body = "try:\n    x = bytearray(400 << 20)\n    print('got it')\nexcept MemoryError:\n    print('none')\n"
    program = f"#!{sys.executable} -IS\n{body}"

    result = grade(source(tmp_path / "s", program), [case("1", stdout="none\n")], limits=Limits(memory=200 << 20))

    assert result.passed == 1


def test_bytes_that_are_not_utf8_are_compared_as_they_are(tmp_path: Path) -> None:
    program = "#!/bin/sh\nprintf '\\377%s' \"$1\"\n"
    cases = [case("1", "\udcfe", stdout="\udcff\udcfe"), case("2", "\udcfe", stdout="\ufffd\ufffd")]

    result = grade(source(tmp_path / "s", program), cases)

    assert [failure.id for failure in result.failures] == ["2"]


def test_a_signal_is_128_and_its_number(tmp_path: Path) -> None:
    result = grade(source(tmp_path / "s", "#!/bin/sh\nkill -SEGV $$\n"), [case("1", code=139)])

    assert result.passed == 1


def test_an_executable_that_cannot_be_started_fails_its_cases_only(tmp_path: Path) -> None:
    result = grade(source(tmp_path / "s", "#!/no/such/interpreter\n"), [case("1")])

    assert result.build_ok
    assert [failure.code for failure in result.failures] in ([126], [127])


def test_a_commit_is_graded_without_what_is_not_in_it(tmp_path: Path) -> None:
    work = source(tmp_path / "work", "#!/bin/sh\necho one\n")
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "one")
    first = git(work, "rev-parse", "HEAD")
    source(work, "#!/bin/sh\ntest -e ../.git -o -e .git && echo repository\necho two\n")
    git(work, "commit", "-qam", "two")
    git(work, "clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    source(work, "#!/bin/sh\necho not committed\n")
    cases = [case("1", stdout="two\n")]

    assert grade_commit(work, "main", cases).passed == 1
    assert grade_commit(tmp_path / "bare.git", "main", cases).passed == 1
    assert grade_commit(tmp_path / "bare.git", first, cases).failures[0].got == "one\n"
    with pytest.raises(GradeError, match="has no commit 'nowhere'"):
        grade_commit(work, "nowhere", cases)
    with pytest.raises(GradeError, match="has no commit '--output=x'"):
        export(work, "--output=x", tmp_path / "out")


def test_the_command_line_prints_the_grade_and_leaves_the_source_alone(tmp_path: Path) -> None:
    folder = source(tmp_path / "s", "#!/bin/sh\necho one\n")
    cases = tmp_path / "cases.jsonl"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agensh.runs.grader", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    cases.write_text(dump_cases([case("1", stdout="one\n")]))
    good = run("--source", str(folder), "--cases", str(cases), "--json")
    cases.write_text(dump_cases([case("1", stdout="two\n")]))
    bad = run("--source", str(folder), "--cases", str(cases))
    wrong = run("--source", str(folder), "--cases", str(tmp_path / "none"))

    assert (good.returncode, json.loads(good.stdout)["pass_rate"]) == (0, 1.0)
    assert bad.returncode == 1
    assert "pass rate 0.000 (0 of 1)" in bad.stdout
    assert wrong.returncode == 2
    assert "cannot be read" in wrong.stderr
    assert not (folder / "executable").exists()
