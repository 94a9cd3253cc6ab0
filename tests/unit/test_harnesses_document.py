"""docs/harnesses.md: a section for each adapter; each `team.toml` there and in docs/gateway.md is one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from adapters.registry import adapter_class, adapter_names
from agensh.harnesses import TESTED
from agensh.spec import TeamSpec, parse_spec

PAGE = (Path(__file__).parents[2] / "docs" / "harnesses.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
GATEWAY_PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
GATEWAY_BLOCKS = re.findall(r"^```toml\n(.*?)^```", GATEWAY_PAGE, re.MULTILINE | re.DOTALL)
TASK: dict[str, Any] = {
    "team": {"name": "demo", "workers": 1},
    "task": {"kind": "repo", "goal": "x", "acceptance": "x"},
}


def spec_of(block: str) -> TeamSpec:
    return parse_spec(TASK | tomllib.loads(block), source="docs/harnesses.md")


@pytest.mark.parametrize("name", adapter_names())
def test_every_adapter_has_its_section(name: str) -> None:
    assert name in SECTIONS, f"docs/harnesses.md has no section `## {name}`"
    if name == "rehearsal":
        return  # its spec is written by the command
    blocks = re.findall(r"^```toml\n(.*?)^```", SECTIONS[name], re.MULTILINE | re.DOTALL)
    own = [worker for block in blocks if (worker := spec_of(block).worker).harness == name]
    assert own
    for worker in own:
        adapter_class(name).check("rebuild", worker.options)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_team_toml_is_one(block: str) -> None:
    spec = spec_of(block)
    assert spec.gateway is not None or spec.worker.harness in adapter_names()


@pytest.mark.parametrize("block", GATEWAY_BLOCKS)
def test_every_section_of_the_gateways_page_is_one(block: str) -> None:
    assert spec_of(block).gateway is not None


def test_every_tested_version_is_named() -> None:
    for package in TESTED:
        assert {package.name, *package.versions} <= {word for word in (package.name, *package.versions) if word in PAGE}


def test_every_provider_is_there() -> None:
    hosts = "\n".join(block for block in BLOCKS if "[gateway]" in block)
    for part in ("api.openai.com", "openai.azure.com", "api.anthropic.com", "127.0.0.1"):
        assert part in hosts
