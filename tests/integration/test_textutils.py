"""The task examples/textutils: its reference, its hidden cases, its playbook, graded for real."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.scripted.playbook import Playbook, load
from agensh.cases import AnsweredCase, Case, dump_cases, generate_cases
from agensh.runs.cases import answer, run_all
from agensh.runs.grader import Grade, grade
from agensh.trial import Workbench

TASK = Path(__file__).resolve().parents[2] / "examples" / "textutils"
REFERENCE = TASK / "reference" / "textutils"
PLAYBOOK = load(TASK / "playbook")
TOOLS = [area.tool for area in PLAYBOOK.areas]

pytestmark = pytest.mark.skipif(
    not all(Path(f"/usr/bin/{tool}").exists() for tool in TOOLS), reason="the reference needs the coreutils in /usr/bin"
)


def deliver(folder: Path, revisions: Mapping[str, int]) -> Path:
    """Write what a team that merged these revisions has."""
    files = PLAYBOOK.core_files()
    for tool, revision in revisions.items():
        files[PLAYBOOK.source_path(tool)] = PLAYBOOK.source(tool, revision)
        files[PLAYBOOK.dispatch_path] = PLAYBOOK.register(files[PLAYBOOK.dispatch_path], tool)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def hidden() -> list[AnsweredCase]:
    return answer(generate_cases(TASK / "cases.py"), REFERENCE)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Deliverables by revision; a tool without that many has its last one."""
    most = max(PLAYBOOK.revisions(tool) for tool in TOOLS)
    return {
        number: deliver(
            tmp_path_factory.mktemp(f"revision-{number}"),
            {tool: min(number, PLAYBOOK.revisions(tool)) for tool in TOOLS},
        )
        for number in range(1, most + 1)
    }


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build with one tool `wc-0`, `wc-1`, … a defect: the right implementation with that defect alone."""
    folder = deliver(tmp_path_factory.mktemp("variants"), {})
    rows = []
    for tool in TOOLS:
        right = PLAYBOOK.source(tool, PLAYBOOK.revisions(tool))
        for number, defect in enumerate(PLAYBOOK.defects(tool, 1)):
            module = f"{tool}_{number}"
            (folder / PLAYBOOK.source_path(module)).write_text(right.replace(defect.old, defect.new))
            rows.append(f'    "{tool}-{number}": "tools.{module}",\n')
    (folder / PLAYBOOK.dispatch_path).write_text("TOOLS = {\n" + "".join(rows) + "}\n")
    subprocess.run([folder / "compile.sh"], check=True)
    return folder


@pytest.fixture(scope="module")
def grades(builds: dict[int, Path], hidden: list[AnsweredCase]) -> dict[int, Grade]:
    """Grades of all revisions; this also builds them."""
    return {number: grade(folder, hidden) for number, folder in builds.items()}


def test_the_hidden_set_is_large_even_and_the_same_each_time() -> None:
    cases = generate_cases(TASK / "cases.py")
    groups = Counter(case.group for case in cases)

    assert set(groups) == set(TOOLS)
    assert len(cases) >= 480
    assert min(groups.values()) >= 15
    assert all(case.args[0] == case.group for case in cases)
    assert len({(case.args, case.stdin, tuple(sorted(case.files.items()))) for case in cases}) == len(cases)
    assert generate_cases(TASK / "cases.py") == cases
    assert generate_cases(TASK / "cases.py", "--seed", "another") != cases


def test_the_hidden_answers_cover_success_and_failure_of_every_tool(hidden: list[AnsweredCase]) -> None:
    codes = {(case.group, case.code != 0) for case in hidden}

    assert {tool for tool, failed in codes if failed} == set(TOOLS)
    assert {tool for tool, failed in codes if not failed} == set(TOOLS)


def test_the_whole_deliverable_rises_from_partly_wrong_to_right(grades: dict[int, Grade]) -> None:
    assert all(result.build_ok for result in grades.values()), [result.build_log for result in grades.values()]
    rates = [grades[number].pass_rate for number in sorted(grades)]

    assert rates == sorted(rates)
    assert 0.3 < rates[0] < 0.75
    assert rates[-1] >= 0.99, grades[max(grades)].failures


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_revisions_are_really_wrong_and_its_probes_find_it(
    tool: str, grades: dict[int, Grade], builds: dict[int, Path], variants: Path, tmp_path: Path
) -> None:
    last = PLAYBOOK.revisions(tool)
    first_score, last_score = grades[1].by_group[tool], grades[last].by_group[tool]

    assert 2 <= last <= 4
    assert last_score.passed >= 0.98 * last_score.total, grades[last].failures
    assert 0 < first_score.passed <= last_score.passed - 3

    probes = PLAYBOOK.probes(tool, "wide", "worker-1")
    outcomes = run_all(REFERENCE, probes)
    answered = [
        AnsweredCase.of(case, outcome.text(), outcome.code) for case, outcome in zip(probes, outcomes, strict=True)
    ]
    for revision in range(1, last):
        assert reveals(builds[revision], answered, tmp_path), (
            f"no wide probe shows what is wrong with revision {revision}"
        )
    for number, defect in enumerate(PLAYBOOK.defects(tool, 1)):
        assert reveals(variants, answered, tmp_path, f"{tool}-{number}"), f"no wide probe shows: {defect.summary}"
    wrong = [
        case.args
        for case, outcome in zip(answered, run_all(builds[last] / "executable", probes), strict=True)
        if not outcome.answers(case)
    ]
    assert wrong == []


def reveals(build: Path, probes: list[AnsweredCase], scratch: Path, tool: str | None = None) -> bool:
    """Say whether one of the answered probes of a tool fails; `tool` calls it by another name."""
    bench = Workbench(scratch)
    for case in probes:
        called = replace(case, args=(tool, *case.args[1:])) if tool else case
        if not bench.run(build / "executable", called).answers(case):
            return True
    return False


def test_basic_probes_find_something_in_about_half_of_the_first_revisions(
    grades: dict[int, Grade], builds: dict[int, Path], tmp_path: Path
) -> None:
    assert grades[1].build_ok
    found = []
    for tool in TOOLS:
        probes = PLAYBOOK.probes(tool, "basic", "worker-1")
        outcomes = run_all(REFERENCE, probes)
        answered = [AnsweredCase.of(case, o.text(), o.code) for case, o in zip(probes, outcomes, strict=True)]
        if reveals(builds[1], answered, tmp_path):
            found.append(tool)

    assert len(found) >= len(TOOLS) // 2


def test_probes_are_the_workers_own(hidden: list[AnsweredCase]) -> None:
    """Other seeds give other probes, and none of them is a hidden case."""

    def key(case: Case) -> tuple[object, ...]:
        return case.args, case.stdin, tuple(sorted(case.files.items()))

    one, two = PLAYBOOK.probes("sort", "wide", "a"), PLAYBOOK.probes("sort", "wide", "b")
    hidden_keys = {key(case) for case in hidden}

    assert PLAYBOOK.probes("sort", "wide", "a") == one
    assert {key(case) for case in one} & {key(case) for case in two} == set()
    assert {key(case) for case in one} & hidden_keys == set()
    assert len(PLAYBOOK.probes("sort", "basic", "a")) == 10


@pytest.mark.parametrize("program", ["reference", "deliverable"])
def test_a_tool_is_found_by_name_or_by_first_argument(program: str, tmp_path: Path) -> None:
    executable = REFERENCE
    if program == "deliverable":
        folder = deliver(tmp_path / "source", {"basename": PLAYBOOK.revisions("basename")})
        subprocess.run([folder / "compile.sh"], check=True)
        executable = folder / "executable"
    (tmp_path / "basename").symlink_to(executable)

    def run(*command: str | Path) -> tuple[int, str, bool]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        return done.returncode, done.stdout, bool(done.stderr)

    assert run(executable, "basename", "a/b") == (0, "b\n", False)
    assert run(tmp_path / "basename", "a/b") == (0, "b\n", False)
    assert run(executable, "cp", "a", "b") == (127, "", True)
    assert run(executable) == (127, "", True)


def test_the_teams_check_fails_on_a_difference_and_names_the_case(tmp_path: Path) -> None:
    folder = deliver(tmp_path, {"basename": PLAYBOOK.revisions("basename")})
    (folder / "tests").mkdir()
    case = AnsweredCase("basename-0001", ("basename", "a/b"), None, {}, "basename", "b\n", 0)

    def check() -> subprocess.CompletedProcess[str]:
        command = ["python3", str(folder / "check.py")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (folder / "tests" / "basename.jsonl").write_text(dump_cases([case]))
    good = check()
    wrong = AnsweredCase.of(case, "c\n", 0)
    (folder / "tests" / "basename.jsonl").write_text(dump_cases([wrong]))
    bad = check()

    assert (good.returncode, good.stdout) == (0, "1 of 1 cases pass\n")
    assert bad.returncode == 1
    assert "FAIL basename-0001" in bad.stdout


def test_two_registrations_from_one_base_conflict_in_git(tmp_path: Path) -> None:
    def git(*args: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": os.devnull}
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *identity, *args], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    file = tmp_path / "dispatch.py"
    base = PLAYBOOK.core_files()[PLAYBOOK.dispatch_path]
    file.write_text(base)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "base")
    for tool in ("wc", "cut"):
        git("checkout", "-qb", tool, "main")
        file.write_text(PLAYBOOK.register(base, tool))
        git("commit", "-qam", tool)

    merged = git("merge", "wc")

    assert merged.returncode == 1
    assert "CONFLICT" in merged.stdout
    assert file.read_text().count("<<<<<<<") == 1


def test_a_broken_pipe_is_no_traceback(tmp_path: Path) -> None:
    folder = deliver(tmp_path, {"seq": PLAYBOOK.revisions("seq")})
    subprocess.run([folder / "compile.sh"], check=True)
    done = subprocess.run(
        ["sh", "-c", f"{folder}/executable seq 100000 | head -n 1"], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("1\n", "")


def test_the_playbook_names_every_tool_of_the_goal() -> None:
    goal = (TASK / "goal.md").read_text()

    assert isinstance(PLAYBOOK, Playbook)
    assert 24 <= len(TOOLS) == len(set(TOOLS))
    assert all(f" {tool} " in goal.replace("\n", " ") for tool in TOOLS)
