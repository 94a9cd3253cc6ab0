"""The board that a shim asks, and shims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.shim.session import Session
from tests.support.pending_server import PendingServer, pending_server


@pytest.fixture
def board() -> Iterator[PendingServer]:
    with pending_server() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, board: PendingServer) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def begin(*steps: list[Any], **environment: str) -> Session:
        identity = {
            "AGENSH_BOARD_URL": board.url,
            "AGENSH_WORKER": "demo-worker1",
            "AGENSH_BOARD_TOKEN": board.token,
        }
        sessions.append(Session(tmp_path, list(steps), {**identity, **environment}))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()
