"""What a benchmark says: one figure a line, as JSON, and compared with the last run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bound on a figure's value or ratio."""

    of: str
    """`value` or `ratio`."""
    sign: str
    """`<=` or `>=`."""
    bound: float

    def met(self, figure: Figure) -> bool:
        """Say whether the figure keeps the bound."""
        number = getattr(figure, self.of)
        return number is not None and (number <= self.bound if self.sign == "<=" else number >= self.bound)

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and the floor that was measured in the same run."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    wanted: tuple[Wanted, ...] = ()

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of the floor."""
        return self.value / self.floor if self.floor else None

    @property
    def missed(self) -> list[Wanted]:
        """The bounds that it does not keep."""
        return [wanted for wanted in self.wanted if not wanted.met(self)]

    def line(self) -> str:
        """Return the figure as one line."""
        floor = "" if self.floor is None else f"{_short(self.floor):>9}"
        ratio = "" if self.ratio is None else f"{self.ratio:8.2f}"
        wanted = ", ".join(f"{wanted} {'ok' if wanted.met(self) else 'MISSED'}" for wanted in self.wanted)
        return f"{self.name:32} {_short(self.value):>9} {self.unit:6} {floor:>9} {ratio:>8}  {wanted}".rstrip()

    def to_json(self) -> dict[str, Any]:
        """Return what `build/bench.json` holds of it."""
        rounded = [
            None if number is None else float(f"{number:.6g}") for number in (self.value, self.floor, self.ratio)
        ]
        return {"name": self.name, "value": rounded[0], "unit": self.unit, "floor": rounded[1], "ratio": rounded[2]}


HEADING = f"{'figure':32} {'value':>9} {'unit':6} {'floor':>9} {'ratio':>8}"


def at_most(bound: float, of: str = "value") -> Wanted:
    """Return an upper bound."""
    return Wanted(of, "<=", bound)


def at_least(bound: float, of: str = "value") -> Wanted:
    """Return a lower bound."""
    return Wanted(of, ">=", bound)


def comparison(last: Sequence[dict[str, Any]], figures: Iterable[Figure]) -> list[str]:
    """Return a line for every figure that the last run had as well: then, now, and the change."""
    before = {item["name"]: item for item in last}
    lines = []
    for figure in figures:
        old = before.get(figure.name)
        if old is None or not old["value"]:
            continue
        change = (figure.value / old["value"] - 1) * 100
        ratios = "" if not (old["ratio"] and figure.ratio) else f"  ratio {old['ratio']:.2f} -> {figure.ratio:.2f}"
        lines.append(
            f"{figure.name:32} {_short(old['value']):>9} -> {_short(figure.value):>9} {change:+6.0f} %{ratios}"
        )
    return lines


def read_last(path: Path) -> list[dict[str, Any]]:
    """Return the figures of the last run, none when there was none."""
    try:
        last: list[dict[str, Any]] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return []
    return last


def write(path: Path, figures: Iterable[Figure], last: Iterable[dict[str, Any]]) -> None:
    """Write the figures; those of the last run that were not measured this time stay."""
    measured = [figure.to_json() for figure in figures]
    names = {item["name"] for item in measured}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [item for item in last if item["name"] not in names]
    path.write_text(json.dumps([*measured, *kept], indent=1) + "\n")


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"
