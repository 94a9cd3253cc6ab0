"""What a rule-based worker brings along: areas, first files, and implementations that are wrong in places.

A playbook is a folder:

    playbook.toml         [[area]] tool, title; [core] title, dispatch (registration file), source, cases (paths)
    core/                 the files of the first change, as they lie in the repository
    tools/<tool>.py       the right implementation of each tool
    defects/<tool>.toml   what is wrong with the earlier revisions
    probes.py             prints a worker's own inputs for one tool

Revision N of a tool is its right implementation with every defect put in that is fixed in a later revision than N, so
the last revision is the right one. A worker takes the next one only because one of its probes shows a difference.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agensh.cases import Case, generate_cases
from agensh.errors import AgenshError

LEVELS = ("basic", "wide")
SUMMARY_CAP = 100  # characters of an entry, the name of the tool before the summary included


class PlaybookError(AgenshError):
    """The playbook is not valid."""


@dataclass(frozen=True, slots=True)
class Area:
    """A piece of work one worker can claim."""

    tool: str
    title: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A fault in the revisions before `fixed_in`: there, `old` of the right text stands as `new`."""

    fixed_in: int
    level: str
    """The probe level that shows it first: basic or wide."""
    summary: str
    """One sentence: what the faulty revisions do, and what is right."""
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Playbook:
    """The bundled implementations of one task."""

    folder: Path
    areas: tuple[Area, ...]
    core_title: str
    dispatch_path: str
    """The shared registration file, in the repository."""
    source_pattern: str
    cases_pattern: str
    faults: dict[str, tuple[Defect, ...]]

    def core_files(self) -> dict[str, str]:
        """Return the files of the first change: path in the repository to text. One with a `#!` line is a script."""
        core = self.folder / "core"
        paths = sorted(path for path in core.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(core).as_posix(): path.read_text(encoding="utf-8") for path in paths}

    def revisions(self, tool: str) -> int:
        """Return the number of the tool's last revision, which is the right one; the first is 1."""
        return max((defect.fixed_in for defect in self._faults(tool)), default=1)

    def defects(self, tool: str, revision: int) -> tuple[Defect, ...]:
        """Return what is wrong with a revision, what the next revision fixes first."""
        left = (defect for defect in self._faults(tool) if defect.fixed_in > revision)
        return tuple(sorted(left, key=lambda defect: defect.fixed_in))

    def source(self, tool: str, revision: int) -> str:
        """Return the whole module of a revision."""
        if not 1 <= revision <= self.revisions(tool):
            raise PlaybookError(f"{tool} has revisions 1 to {self.revisions(tool)}, not {revision}.")
        text = (self.folder / "tools" / f"{tool}.py").read_text(encoding="utf-8")
        for defect in self.defects(tool, revision):
            if text.count(defect.old) != 1:
                raise PlaybookError(
                    f"defects/{tool}.toml: the old text of {defect.summary!r} occurs {text.count(defect.old)} times in "
                    f"revision {revision}, not once."
                )
            text = text.replace(defect.old, defect.new)
        return text

    def source_path(self, tool: str) -> str:
        """Return where the tool's module lies in the repository."""
        return self.source_pattern.format(tool=tool)

    def cases_path(self, tool: str) -> str:
        """Return where the tool's answered cases lie in the repository: the team's check runs them."""
        return self.cases_pattern.format(tool=tool)

    def dispatch_line(self, tool: str) -> str:
        """Return the tool's line of the registration file, without a newline; it goes before the line with `}`."""
        return f'    "{tool}": "tools.{tool}",'

    def register(self, dispatch: str, tool: str) -> str:
        """Return the text of the registration file with the tool in it, at the end; unchanged when it is there."""
        line = self.dispatch_line(tool)
        rows = dispatch.splitlines()
        if line in rows:
            return dispatch
        if "}" not in rows:
            raise PlaybookError(f"{self.dispatch_path} has no line with a closing brace alone; {tool} goes before it.")
        end = max(number for number, row in enumerate(rows) if row == "}")
        return "\n".join([*rows[:end], line, *rows[end:]]) + "\n"

    def probes(self, tool: str, level: str, seed: str) -> list[Case]:
        """Return a worker's own inputs: `basic` is ordinary use, `wide` has the edges too. Another seed, others."""
        if level not in LEVELS:
            raise PlaybookError(f"The probe level must be one of {', '.join(LEVELS)}, not {level!r}.")
        return generate_cases(self.folder / "probes.py", "--tool", tool, "--level", level, "--seed", seed)

    def _faults(self, tool: str) -> tuple[Defect, ...]:
        if tool not in self.faults:
            raise PlaybookError(f"The playbook has no tool {tool!r}.")
        return self.faults[tool]


def load(playbook: Path) -> Playbook:
    """Read a playbook folder; raise PlaybookError that names the file and the field."""
    main = _toml(playbook / "playbook.toml")
    core = main.get("core", {})
    areas = tuple(
        Area(**_fields(entry, "playbook.toml [[area]]", tool=str, title=str)) for entry in main.get("area", [])
    )
    head = _fields(core, "playbook.toml [core]", title=str, dispatch=str, source=str, cases=str)
    faults = {}
    for area in areas:
        if not (playbook / "tools" / f"{area.tool}.py").is_file():
            raise PlaybookError(f"playbook.toml names the tool {area.tool!r}, but there is no tools/{area.tool}.py.")
        faults[area.tool] = _defects(playbook, area.tool)
    return Playbook(playbook, areas, head["title"], head["dispatch"], head["source"], head["cases"], faults)


def _defects(playbook: Path, tool: str) -> tuple[Defect, ...]:
    path = playbook / "defects" / f"{tool}.toml"
    if not path.exists():
        return ()
    where = f"defects/{tool}.toml [[defect]]"
    defects = []
    for entry in _toml(path).get("defect", []):
        defect = Defect(**_fields(entry, where, fixed_in=int, level=str, summary=str, old=str, new=str))
        if defect.fixed_in < 2:
            raise PlaybookError(f"{where}: fixed_in must be at least 2, not {defect.fixed_in}.")
        if (length := len(f"{tool}: {defect.summary}")) > SUMMARY_CAP:
            raise PlaybookError(
                f"{where}: tool and summary have {length} characters together; at most {SUMMARY_CAP} fit an entry."
            )
        if defect.level not in LEVELS:
            raise PlaybookError(f"{where}: level must be one of {', '.join(LEVELS)}, not {defect.level!r}.")
        defects.append(defect)
    return tuple(defects)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlaybookError(f"{path} cannot be read: {error}.") from error


def _fields(entry: dict[str, Any], where: str, **kinds: type) -> dict[str, Any]:
    for name, kind in kinds.items():
        if not isinstance(entry.get(name), kind):
            raise PlaybookError(f"{where}: {name} must be {kind.__name__}, not {entry.get(name)!r}.")
    if unknown := sorted(set(entry) - set(kinds)):
        raise PlaybookError(f"{where}: unknown field {unknown[0]!r}; allowed: {', '.join(sorted(kinds))}.")
    return entry
