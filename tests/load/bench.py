"""What benchmarks share: a private MariaDB, board services on it, and the floors, started when first needed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from tests.load.figures import Figure
from tests.load.generator import Plan, Seen, request
from tests.load.processes import Server, load, started
from tests.support.mariadb import MariaDb, running_mariadb

ADMIN = "bench-admin-token"
WORKERS = 64
NOTE = {"type": "FACT", "content": "c" * 100, "detail": "d" * 300}
BUFFERS = ("--innodb-buffer-pool-size=768M", "--max-connections=300")
REDO_LOG = "256M"

Benchmark = Callable[["Bench"], Iterator[Figure]]
BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a benchmark under its name."""
    BENCHMARKS[function.__name__] = function
    return function


class Board:
    """A board service in a process of its own, and tokens of `bench-worker1` to 64 for each of its boards."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{server.port}",
            headers={"Authorization": f"Bearer {ADMIN}"},
            trust_env=False,
            timeout=120,
        )
        self._tokens: dict[str, list[str]] = {}

    def tokens(self, board: str) -> list[str]:
        """Return the workers' tokens for a board."""
        if board not in self._tokens:
            self._tokens[board] = [
                self.http.post(
                    "/tokens", json={"worker": f"bench-worker{number}", "board": board, "role": "worker"}
                ).json()["token"]
                for number in range(1, WORKERS + 1)
            ]
        return self._tokens[board]

    def writes(self, clients: int, board: str = "main") -> list[str]:
        """Return a request that writes a note, for each client."""
        tokens = self.tokens(board)
        return [
            request("POST", f"/board/{board}/note", token=tokens[number % WORKERS], body=NOTE)
            for number in range(clients)
        ]

    def polls(self, clients: int, board: str = "main") -> list[str]:
        """Return a request for what is pending, for each client, after making sure that nothing is."""
        tokens = self.tokens(board)
        for number, token in enumerate(tokens, 1):
            path = f"/pending/bench-worker{number}?ack={2**50}"
            self.http.get(path, headers={"Authorization": f"Bearer {token}"}).raise_for_status()
        return [
            request("GET", f"/pending/bench-worker{number % WORKERS + 1}", token=tokens[number % WORKERS])
            for number in range(clients)
        ]


class Bench:
    """The servers of one run of the suite."""

    def __init__(self, stack: ExitStack, folder: Path, seconds: float, rounds: int, entries: int) -> None:
        self._stack = stack
        self.folder = folder
        self.seconds = seconds
        self.rounds = rounds
        self.entries = entries
        """How many entries a long history has."""

    @cached_property
    def mariadb(self) -> MariaDb:
        return self._stack.enter_context(running_mariadb(*BUFFERS, redo_log=REDO_LOG))

    @cached_property
    def database(self) -> str:
        """URL of the board's database on MariaDB."""
        return self.mariadb.new_database()

    @cached_property
    def board(self) -> Board:
        """The board service on MariaDB."""
        return self.serve(self.database)

    @cached_property
    def floor(self) -> Server:
        """The bare FastAPI endpoint."""
        return self._stack.enter_context(started(["-m", "tests.load.floor_app"], "floor:"))

    def serve(self, database: str) -> Board:
        """Start a board service on a database."""
        command = ["-m", "agensh", "board", "serve", "--db", database, "--port", "0"]
        # One client asks here as often as hundreds of workers: the limits of one worker are off.
        environment = {
            "AGENSH_BOARD_ADMIN_TOKEN": ADMIN,
            "AGENSH_BOARD_WRITE_RATE": "0",
            "AGENSH_BOARD_READ_RATE": "0",
        }
        board = Board(self._stack.enter_context(started(command, "board: http", environment)))
        self._stack.callback(board.http.close)
        return board

    def load(self, server: Server, requests: Sequence[str], **plan: Any) -> Seen:
        """Put a server under load."""
        values = {"seconds": self.seconds, "requests": list(requests)} | plan
        return load(Plan(host="127.0.0.1", port=server.port, **values))

    def alternate(self, *measures: Callable[[], Seen]) -> list[list[Seen]]:
        """Run the measures in turn, `rounds` times, so that what disturbs one disturbs the others; a list for each."""
        seen: list[list[Seen]] = [[] for _ in measures]
        for _ in range(self.rounds):
            for measure, found in zip(measures, seen, strict=True):
                found.append(measure())
        return seen


def median(seen: Sequence[Seen], field: str) -> float:
    """Return the median of a field over rounds."""
    return float(statistics.median(getattr(one, field) for one in seen))


def failures(name: str, *seen: Sequence[Seen]) -> None:
    """RuntimeError when any answer was no success: its figures would mean nothing."""
    bad = [one.statuses for group in seen for one in group if one.failures or not one.answered]
    if bad:
        raise RuntimeError(f"{name}: not every request was answered well; answers by status: {bad}")
