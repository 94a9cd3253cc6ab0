"""One chat for all contract tests, one team for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.chat.world import World, make_world
from tests.support.chat_server import RunningChat, running_chat


@pytest.fixture(scope="session")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningChat]:
    with running_chat(tmp_path_factory.mktemp("chat")) as running:
        yield running


@pytest.fixture
def world(chat: RunningChat) -> Iterator[World]:
    with make_world(chat) as made:
        yield made
