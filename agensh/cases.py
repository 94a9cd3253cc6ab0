"""Behaviour cases: what is given to a program, and what it answers.

A case file holds one JSON object a line:

    {"id": "wc-0007", "args": ["wc", "-l", "f1"], "stdin": null, "files": {"f1": "one\\n"}, "group": "wc"}

and, once answered, also `"stdout"`, `"code"` and optionally `"check_stderr_nonempty": true`. Standard error is never
compared word for word. Text is UTF-8; bytes that are not UTF-8 travel as lone surrogates (`surrogateescape`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self, TypeVar

from agensh.errors import AgenshError

T = TypeVar("T", bound="Case")
_CASE_KEYS = {"id", "args", "stdin", "files", "group"}
_ANSWER_KEYS = {"stdout", "code", "check_stderr_nonempty"}


class CaseError(AgenshError):
    """The case file is not valid."""


@dataclass(frozen=True, slots=True)
class Case:
    """One invocation: arguments, standard input (None: empty) and the files of the folder it runs in."""

    id: str
    args: tuple[str, ...]
    stdin: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the case as the object of one line."""
        return {
            "id": self.id,
            "args": list(self.args),
            "stdin": self.stdin,
            "files": dict(self.files),
            "group": self.group,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the object of one line; raise CaseError that names the case and the field."""
        _check(data, _CASE_KEYS)
        return cls(**_case_fields(data))


@dataclass(frozen=True, slots=True)
class AnsweredCase(Case):
    """A case with the reference's answer: standard output and exit code (128 + N for signal N)."""

    stdout: str = ""
    code: int = 0
    check_stderr_nonempty: bool = False
    """Also demand that something is written to standard error."""

    def to_json(self) -> dict[str, Any]:
        data = Case.to_json(self) | {"stdout": self.stdout, "code": self.code}
        return data | {"check_stderr_nonempty": True} if self.check_stderr_nonempty else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        _check(data, _CASE_KEYS | _ANSWER_KEYS)
        name = data["id"]
        stdout, code = data.get("stdout"), data.get("code")
        if not isinstance(stdout, str):
            raise CaseError(f"Case {name}: stdout must be text, not {stdout!r}.")
        if not isinstance(code, int) or isinstance(code, bool):
            raise CaseError(f"Case {name}: code must be a whole number, not {code!r}.")
        flag = data.get("check_stderr_nonempty", False)
        if not isinstance(flag, bool):
            raise CaseError(f"Case {name}: check_stderr_nonempty must be true or false, not {flag!r}.")
        return cls(**_case_fields(data), stdout=stdout, code=code, check_stderr_nonempty=flag)

    @classmethod
    def of(cls, case: Case, stdout: str, code: int, *, check_stderr_nonempty: bool = False) -> Self:
        """Return `case` with its answer."""
        return cls(case.id, case.args, case.stdin, case.files, case.group, stdout, code, check_stderr_nonempty)


def _check(data: Mapping[str, Any], allowed: set[str]) -> None:
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str) or not data["id"]:
        raise CaseError("Every case needs an id, a non-empty text.")
    if unknown := sorted(set(data) - allowed):
        raise CaseError(f"Case {data['id']}: unknown field {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}.")


def _case_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    name = data["id"]
    args, stdin, files, group = data.get("args"), data.get("stdin"), data.get("files", {}), data.get("group", "")
    if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
        raise CaseError(f"Case {name}: args must be a list of texts without NUL, not {args!r}.")
    if stdin is not None and not isinstance(stdin, str):
        raise CaseError(f"Case {name}: stdin must be text or null, not {stdin!r}.")
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise CaseError(f"Case {name}: files must map names to texts, not {files!r}.")
    for path in files:
        parts = PurePosixPath(path).parts
        if not parts or "\0" in path or path.startswith("/") or ".." in parts:
            raise CaseError(f"Case {name}: the file name {path!r} must stay inside the case's folder.")
    if not isinstance(group, str):
        raise CaseError(f"Case {name}: group must be text, not {group!r}.")
    return {"id": name, "args": tuple(args), "stdin": stdin, "files": dict(files), "group": group}


def parse_cases(kind: type[T], lines: Iterable[str], *, where: str = "the case file") -> list[T]:
    """Read cases from JSON lines (empty lines are skipped); ids must be unique. Errors name the line."""
    cases: list[T] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = kind.from_json(json.loads(line))
        except json.JSONDecodeError as error:
            raise CaseError(f"{where}, line {number}: not JSON ({error.msg}).") from error
        except CaseError as error:
            raise CaseError(f"{where}, line {number}: {error}") from error
        if case.id in seen:
            raise CaseError(f"{where}, line {number}: the id {case.id} occurs twice.")
        seen.add(case.id)
        cases.append(case)
    return cases


def read_cases(kind: type[T], path: Path) -> list[T]:
    """Read a case file: `read_cases(AnsweredCase, path)`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"The case file {path} cannot be read: {error}.") from error
    return parse_cases(kind, text.split("\n"), where=str(path))


def dump_cases(cases: Iterable[Case]) -> str:
    """Return cases as JSON lines."""
    return "".join(json.dumps(case.to_json()) + "\n" for case in cases)


def generate_cases(script: Path, *arguments: str, timeout: float = 60.0) -> list[Case]:
    """Run a task's case script and read the cases it prints."""
    command = [sys.executable, "-E", "-B", str(script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise CaseError(f"The case script {script} took longer than {timeout:g} s.") from error
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise CaseError(f"The case script {script} ended with {done.returncode}: {reason}")
    return parse_cases(Case, done.stdout.decode("utf-8").split("\n"), where=f"the output of {script}")
