"""The texts that agents read, as Jinja2 templates. This module only loads them."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    autoescape=False,  # Markdown for agents, not HTML
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(name: str, **variables: object) -> str:
    """Return the text `prompts/<name>` with its variables; a variable that is missing is an error."""
    return _ENVIRONMENT.get_template(name).render(**variables).strip() + "\n"
