"""`agensh mcp board`: the board's tools on stdio, for any CLI, with what others wrote in every result.

The identity comes from the environment. stdout carries the protocol and nothing else. At least once: what a result
showed is acknowledged with the next call. While the board does not answer the tools say so, and come back with it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from agensh.clients.board import BoardClient
from agensh.clock import Clock, SystemClock
from agensh.errors import ServiceError, UsageError
from router.mcp.calls import new_server, text_result
from router.mcp.ledger import Ledger
from router.mcp.notices import add_notice, place
from router.ports import Notice
from router.tools.board import TOOLS
from router.tools.registry import Toolbox

log = logging.getLogger(__name__)

REFRESH_TIMEOUT = 1.0  # seconds a call waits for its notices
PAUSE = 5.0  # seconds without asking after a failure
START_TIMEOUT = 3.0  # seconds to find out whether the token is valid
INSTRUCTIONS = (
    "The board your team shares: short typed entries. What others write while you work arrives at the end of tool "
    "results under [agensh notices]."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the board is and who this is."""

    url: str
    token: str
    board: str
    worker: str = ""
    """Empty: the owner of the token."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read AGENSH_BOARD_URL, _TOKEN, AGENSH_BOARD and AGENSH_WORKER; UsageError for what is missing."""
        missing = [name for name in ("AGENSH_BOARD_URL", "AGENSH_BOARD_TOKEN") if not environment.get(name)]
        if missing:
            raise UsageError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: start `agensh board serve`, "
                "make a token with `agensh board token <name>`, and put both into the MCP server's environment."
            )
        url = environment["AGENSH_BOARD_URL"].rstrip("/")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise UsageError(f"AGENSH_BOARD_URL is {url!r}; expected a URL such as http://127.0.0.1:8660.")
        board = environment.get("AGENSH_BOARD") or "main"
        return cls(url, environment["AGENSH_BOARD_TOKEN"], board, environment.get("AGENSH_WORKER", ""))


class RemoteDesk:
    """A desk whose notices come from the board's `/pending`."""

    def __init__(self, board: BoardClient, worker: str, clock: Clock) -> None:
        self._board = board
        self._worker = worker
        self._clock = clock
        self._ledger = Ledger()
        self._proved = 0
        self._paused_until = 0.0
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Acknowledge what is proved and fetch what is new; a board that does not answer is left alone for a while."""
        async with self._lock:
            if self._clock.monotonic() < self._paused_until:
                return
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT):
                    if not self._worker:
                        self._worker = await self._board.whoami()
                    ack = self._proved if self._proved > self._ledger.acknowledged else None
                    pending = await self._board.pending(self._worker, ack=ack)
            except (ServiceError, TimeoutError) as error:
                self._paused_until = self._clock.monotonic() + PAUSE
                log.warning("no notices", extra={"action": "no_notices", "reason": str(error)})
                return
            self._ledger.acknowledged = ack or self._ledger.acknowledged
            self._ledger.merge([(notice.id, notice.text) for notice in pending.notices], pending.cursor)

    def acknowledge(self) -> None:
        """See `NoticeDesk`; the next `refresh` tells the board."""
        self._proved = self._ledger.provable()

    def waiting(self) -> bool:
        """See `NoticeDesk`; `collect` is as cheap."""
        return True

    def collect(self, room: int, via: str = "mcp", arrived: Callable[[], bool] | None = None) -> Notice | None:
        """See `NoticeDesk`."""
        notice = self._ledger.take(room)
        return None if notice is None else Notice(notice.text, notice.shown)

    def worker_read(self, posts: Collection[str], arrived: Callable[[], bool] | None = None) -> None:
        """There is no chat here."""


@dataclass(frozen=True, slots=True)
class Port:
    """What the board's tools need (`router.tools.board.BoardPort`)."""

    board: BoardClient
    desk: RemoteDesk


async def serve(settings: Settings, clock: Clock, stdout: anyio.AsyncFile[str]) -> None:
    """Serve until stdin ends; UsageError when the board refuses the token."""
    async with BoardClient(settings.url, settings.token, settings.board) as board:
        port = Port(board, RemoteDesk(board, await _worker(board, settings), clock))
        toolbox = Toolbox(TOOLS, clock=clock)

        async def call(
            context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            port.desk.acknowledge()
            await port.desk.refresh()
            result = text_result(await toolbox.call(port, params.name, params.arguments))
            placement = place(result)
            notice = port.desk.collect(placement.room) if placement is not None and placement.room else None
            if notice is not None:
                result = add_notice(result, notice.text)
            return types.CallToolResult.model_validate(result)

        server = new_server(toolbox, instructions=INSTRUCTIONS, on_call=call)
        async with stdio_server(stdout=stdout) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


def _take_stdout() -> anyio.AsyncFile[str]:
    """Return stdout for the protocol alone: whatever a library or a child prints from now on goes to stderr."""
    wire = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return anyio.wrap_file(io.TextIOWrapper(os.fdopen(wire, "wb"), encoding="utf-8"))


async def _worker(board: BoardClient, settings: Settings) -> str:
    """Return whose notices to fetch; empty when the board does not answer yet."""
    try:
        async with asyncio.timeout(START_TIMEOUT):
            owner = await board.whoami()
    except TimeoutError:
        return settings.worker
    except ServiceError as error:
        if error.status in (401, 403):
            raise UsageError(
                f"AGENSH_BOARD_TOKEN is not valid on {settings.url}; make one with `agensh board token <name>`."
            ) from error
        return settings.worker
    return settings.worker or owner


def main(environment: Mapping[str, str]) -> int:
    """Run `agensh mcp board`; return the exit code."""
    # Nothing is kept here that a signal could lose, and a reader blocked on stdin cannot be cancelled.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    stdout = _take_stdout()
    try:
        asyncio.run(serve(Settings.from_environment(environment), SystemClock(), stdout))
    except UsageError as error:
        sys.stderr.write(f"agensh mcp board: {error}\n")
        return error.exit_code
    return 0
