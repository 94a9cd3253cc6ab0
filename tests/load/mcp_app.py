"""MCP endpoints for `tests.load.node`: `python -m tests.load.mcp_app bare|quiet|notice FOLDER`.

`bare` is one tool on the low-level server of the `mcp` package. The others serve the same tool through a node host's
endpoint, with real desks: with nothing to show, and with a new entry of another worker to show in every result.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
import uvloop
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agensh.clock import SystemClock
from agensh.entries import Entry, EntryType
from agensh.serving import open_socket
from agensh.urls import sqlite_url
from router.desk import Desk
from router.feed import BoardFeed
from router.mcp.server import create_mcp_app
from router.queue import EventQueue, RetryPolicy
from router.tools.registry import Call, Tool
from tests.support.router_database import open_writer
from tests.support.router_stage import MemoryBoard
from tests.support.workers import StubWorker

WORKERS = 8
TEXT = "status=ok\n" + "what the tool found, as it is\n" * 10


class _Bare:
    """The floor."""

    def __init__(self) -> None:
        server: Server[Any] = Server("bare", on_call_tool=self._call)
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    async def _call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=TEXT)])

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


class _Worker(StubWorker):
    """A worker with a real desk that keeps no list of its calls."""

    def __init__(self, name: str, clock: SystemClock, desk: Desk) -> None:
        super().__init__(name, clock)
        self._real = desk

    @property
    def desk(self) -> Any:
        return self._real

    def record(self, call: object) -> None:
        """Recording is measured with the queue."""


async def _serve(app: Starlette) -> None:
    with open_socket("127.0.0.1", 0, "mcp") as listening:
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, lifespan="on")
        sys.stderr.write(f"mcp: http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stderr.flush()
        await uvicorn.Server(config).serve(sockets=[listening])


async def _ours(folder: Path, *, speaking: bool) -> None:
    clock = SystemClock()
    feed = BoardFeed(MemoryBoard(clock), clock)

    async def work(call: Call[Any]) -> str:
        if speaking:
            feed.add(Entry(feed.head + 1, "bench-peer", EntryType.FACT, "c" * 100, clock.time()))
        return TEXT

    async with open_writer(sqlite_url(folder / "runtime.sqlite3"), clock) as writer:
        workers = {}
        for number in range(1, WORKERS + 1):
            name = f"bench-worker{number}"
            queue = EventQueue(name, writer, clock, RetryPolicy())
            workers[name] = _Worker(name, clock, Desk(name, feed, queue, writer, clock))
        await _serve(create_mcp_app(workers, clock=clock, tools=(Tool("work", "Works.", (), work),)))


def main(mode: str, folder: Path) -> None:
    """Serve until SIGTERM."""
    if mode == "bare":
        bare = _Bare()  # on the loop that node hosts have
        uvloop.run(_serve(Starlette(routes=[Route("/mcp/{worker}", bare)], lifespan=bare.lifespan)))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        uvloop.run(_ours(folder, speaking=mode == "notice"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
