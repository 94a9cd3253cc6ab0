"""One websocket whose other end does not read."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket, WebSocketState

from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.connection import SEND_QUEUE
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.hub import Hub
from agensh.embedded.chat.model import Token, User
from agensh.embedded.chat.routes.websocket import Peer
from agensh.embedded.chat.settings import ChatSettings
from agensh.embedded.chat.store import Store
from tests.support.clock import ManualClock


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    directory, clock = Directory(), ManualClock()
    directory.add_user(User("ann", 0, 0, "ann", "ann@x", "system_user"))
    directory.add_token(Token("hash", "token", "ann", 0))
    store = Store(tmp_path / "chat.sqlite3")
    store.close()
    return Chat(store, directory, Hub(directory, clock), clock, ChatSettings())


async def test_a_connection_that_is_stuck_in_a_send_ends_when_it_is_cut(chat: Chat) -> None:
    stuck = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    async def send(message: MutableMapping[str, Any]) -> None:
        stuck.set()
        await asyncio.Event().wait()

    scope = {"type": "websocket", "query_string": b"", "headers": [], "path": "/"}
    socket = WebSocket(scope, receive, send)
    socket.client_state = socket.application_state = WebSocketState.CONNECTED
    peer = Peer(chat, socket)
    peer.open(chat.directory.tokens["hash"])
    running = asyncio.create_task(peer.run())
    async with asyncio.timeout(10):
        await stuck.wait()
        for _ in range(SEND_QUEUE + 1):
            chat.hub.publish("posted", {}, user_id="ann")
        await running
    assert peer.connection.cut
    assert not chat.hub.is_online("ann")
    assert chat.hub.take_dead("ann", peer.connection.id) is None
