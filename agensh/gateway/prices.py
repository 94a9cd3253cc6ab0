"""What tokens cost: an editable table, `prices.toml`, in US dollars per million tokens.

A model is looked up by its name, then without a date at its end (`gpt-5.4-2026-03-05`). Unknown models are counted and
not priced.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agensh.errors import SpecError
from agensh.gateway.usage import Tokens

SHIPPED = Path(__file__).with_name("prices.toml")
_KEYS = ("input", "cached", "cache_write", "output")
_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float
    cache_write: float

    def of(self, tokens: Tokens) -> float:
        """Return what the tokens cost in US dollars; reasoning is output."""
        fresh = max(0, tokens.input - tokens.cached - tokens.cache_write)
        dear = fresh * self.input + tokens.cached * self.cached + tokens.cache_write * self.cache_write
        return (dear + tokens.output * self.output) / 1e6


class Prices:
    """A table of prices."""

    def __init__(self, table: Mapping[str, Price]) -> None:
        self._table = dict(table)

    def price(self, model: str) -> Price | None:
        """Return the price of a model; None when the table does not have it."""
        return self._table.get(model) or self._table.get(_DATE.sub("", model))

    def cost(self, tokens: Tokens, *models: str) -> float | None:
        """Return what the tokens cost by the first of the names that has a price; None when none has."""
        price = next((found for model in models if (found := self.price(model)) is not None), None)
        return None if price is None else price.of(tokens)


def load_prices(own: Path | None = None) -> Prices:
    """Read the shipped table and, over it, a table of one's own; SpecError names the file, the model and the key."""
    table = _read(SHIPPED)
    if own is not None:
        table |= _read(own)
    return Prices(table)


def _read(path: Path) -> dict[str, Price]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}.") from error
    return {model: _price(path, model, row) for model, row in data.items()}


def _price(path: Path, model: str, row: object) -> Price:
    if not isinstance(row, dict):
        raise SpecError(f"{path}: {model}: {row!r} is not allowed; expected a table with input and output.")
    for key, value in row.items():
        if key not in _KEYS:
            raise SpecError(f"{path}: {model}.{key}: no such key; a price has {', '.join(_KEYS)}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or not math.isfinite(value):
            raise SpecError(f"{path}: {model}.{key}: {value!r} is not allowed; expected dollars per million tokens.")
    for key in ("input", "output"):
        if key not in row:
            raise SpecError(f"{path}: {model}.{key}: missing.")
    fresh = float(row["input"])
    return Price(
        input=fresh,
        output=float(row["output"]),
        cached=float(row.get("cached", fresh)),
        cache_write=float(row.get("cache_write", fresh)),
    )
