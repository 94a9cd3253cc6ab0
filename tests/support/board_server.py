"""A real board service for tests: uvicorn on a free port, in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from agensh.clients.board import BoardClient
from agensh.clock import Clock
from agensh.serving import open_socket
from board_service.app import create_app
from board_service.server import new_server
from board_service.service import BoardService
from board_service.settings import BoardSettings


@dataclass(frozen=True, slots=True)
class RunningBoard:
    """Where the service answers, and its bootstrap admin token."""

    url: str
    admin_token: str
    board: str = "main"

    def token_for(self, worker: str, *, role: str = "worker") -> str:
        """Return a new token of `worker` for the board (blocking)."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            body = {"worker": worker, "board": self.board, "role": role}
            response = http.post("/tokens", json=body, headers={"Authorization": f"Bearer {self.admin_token}"})
            response.raise_for_status()
            return str(response.json()["token"])

    def client(self, worker: str) -> BoardClient:
        """Return a client with a new token of `worker`; close it."""
        return BoardClient(self.url, self.token_for(worker), self.board)

    def admin(self) -> BoardClient:
        """Return a client with the admin token; close it."""
        return BoardClient(self.url, self.admin_token, self.board)


@asynccontextmanager
async def serving_board(
    settings: BoardSettings, *, clock: Clock | None = None, board: str = "main", send_buffer: int | None = None
) -> AsyncIterator[tuple[RunningBoard, BoardService]]:
    """Serve a board in the test's own event loop, over real sockets: for manual clocks and for looking inside.

    `send_buffer` bounds the bytes that the kernel takes for a reader that reads nothing.
    """
    listening = open_socket("127.0.0.1", 0, "board")
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    app = create_app(settings, clock=clock)
    server = new_server(app)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(30):
            while not server.started:
                if task.done():
                    raise RuntimeError("the board service did not start")
                await asyncio.sleep(0.005)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield RunningBoard(url, settings.admin_token.get_secret_value(), board), app.state.service
    finally:
        server.should_exit = True
        await task
        listening.close()


@contextmanager
def running_board(
    tmp_path: Path, *, board: str = "main", clock: Clock | None = None, **settings: Any
) -> Iterator[RunningBoard]:
    """Serve a board from `tmp_path` until the block ends; `settings` are those of BoardSettings."""
    admin_token = "test-admin-token"
    values: dict[str, Any] = {"data": str(tmp_path), "admin_token": SecretStr(admin_token)} | settings
    listening = open_socket("127.0.0.1", 0, "board")
    server = new_server(create_app(BoardSettings(**values), clock=clock))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="board")
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the board service did not start")
            time.sleep(0.01)
        yield RunningBoard(f"http://127.0.0.1:{listening.getsockname()[1]}", admin_token, board)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        if thread.is_alive():
            raise RuntimeError("the board service did not stop")
