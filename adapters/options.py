"""Checks of `worker.options`, for adapters: each option has a name and a rule for its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agensh.errors import UsageError

Rule = Callable[[str], str]
"""Returns what is wrong with a value as the end of "… is not allowed: ", nothing when it is right."""


def check_options(harness: str, options: Mapping[str, str], rules: Mapping[str, Rule]) -> None:
    """Raise UsageError for an unknown option, or for a value that breaks its option's rule."""
    for name, value in options.items():
        if name not in rules:
            known = ", ".join(sorted(rules))
            raise UsageError(f"worker.options.{name}: no such option of the {harness} harness; it has: {known}.")
        wrong = rules[name](value)
        if wrong:
            raise UsageError(f"worker.options.{name}: {value!r} is not allowed: {wrong}.")


def path(value: str) -> str:
    """The rule of a path; whether it exists shows when the CLI starts, perhaps on another machine."""
    return "" if value.startswith("/") else "give an absolute path, or one relative to the spec file"


def number(most: float) -> Rule:
    """Return the rule of a number from 0 to `most`."""

    def rule(value: str) -> str:
        try:
            right = 0 <= float(value) <= most
        except ValueError:
            right = False
        return "" if right else f"give a number from 0 to {most:g}"

    return rule


def one_of(*allowed: str) -> Rule:
    """Return the rule of a choice."""
    return lambda value: "" if value in allowed else f"it is one of {', '.join(allowed)}"


def text(value: str) -> str:
    """The rule of any text but none."""
    return "" if value.strip() else "it is empty"
