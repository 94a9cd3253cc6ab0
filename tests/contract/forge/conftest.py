"""A forge for the contract tests: embedded, or the real Gitea that the environment names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.forge.world import World
from tests.support.servers import RunningForge, running_forge


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningForge]:
    if url := os.environ.get("AGENSH_GITEA_URL"):
        yield RunningForge(url.rstrip("/"), os.environ["AGENSH_GITEA_ADMIN"], os.environ["AGENSH_GITEA_PASSWORD"])
        return
    with running_forge(tmp_path_factory.mktemp("forge")) as running:
        yield running


@pytest.fixture
def world(forge: RunningForge, tmp_path: Path) -> Iterator[World]:
    """A repository with a protected main, its owner and two workers, all new."""
    with World(forge, tmp_path, uuid.uuid4().hex[:8]) as world:
        yield world
