"""Every route of an application, hidden ones as well."""

from __future__ import annotations

import re

from fastapi.routing import iter_route_contexts
from starlette.applications import Starlette

_PARAMETER = re.compile(r"\{([a-z_]+)(?::[a-z]+)?\}")


def routes_of(app: Starlette) -> list[tuple[str, str]]:
    """Return `(method, path)` of every HTTP route; `*` where a route takes every method itself."""
    found: list[tuple[str, str]] = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        path = getattr(context, "path", "") or getattr(route, "path", "")
        methods = getattr(context, "methods", None) or getattr(route, "methods", None) or {"*"}
        if type(route).__name__ != "WebSocketRoute":
            found += [(method, path) for method in sorted(methods - {"HEAD"})]
    return found


def filled(path: str, values: dict[str, str]) -> str:
    """Return a route's path with its parameters filled in; AssertionError names one without a value."""

    def value(match: re.Match[str]) -> str:
        assert match[1] in values, f"{path}: the table has no value for {match[1]!r}; add one"
        return values[match[1]]

    return _PARAMETER.sub(value, path)
