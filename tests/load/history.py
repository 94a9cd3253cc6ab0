"""Grep over a long history, on MariaDB and on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.load.bench import Bench, Board, benchmark
from tests.load.figures import Figure, at_most
from tests.load.generator import percentile
from tests.load.processes import resident
from tests.load.seed import seed_mariadb, seed_sqlite

QUERIES = (
    *("nothing has this", "tabs", "case 777", "segfault&locale", "bench-worker1000&exit 255", "segfault&bench-worker7"),
    *(
        "case 123456 ",
        "q",
        "x&zz",
        "segfault&none,locale&neither",
        "not here,nor here,and not here",
        "exit 7 &width wc",
    ),
)
REPEATS = 10
LOADED_SECONDS = 120.0


def _greps(bench: Bench, board: Board, name: str, kind: str) -> Iterator[Figure]:
    empty = resident(board.server.pid)
    started = time.perf_counter()
    board.http.get(f"/board/{name}", params={"limit": 1}).raise_for_status()
    _wait_until_loaded(board)
    loaded = time.perf_counter() - started
    latencies = []
    for query in QUERIES * REPEATS:
        started = time.perf_counter()
        board.http.get(f"/board/{name}/grep", params={"q": query}).raise_for_status()
        latencies.append((time.perf_counter() - started) * 1000)
    before = board.server.cpu()
    for _ in range(REPEATS):
        board.http.get(f"/board/{name}/grep", params={"q": QUERIES[0]})
    spent = (board.server.cpu() - before) / REPEATS * 1000
    label = f"grep_{kind}"
    yield Figure(f"{label}_p50", percentile(sorted(latencies), 0.5), "ms")
    yield Figure(f"{label}_p99", percentile(sorted(latencies), 0.99), "ms", wanted=(at_most(500),))
    yield Figure(f"{label}_no_match_cpu", spent, "ms")
    yield Figure(f"{label}_memory", resident(board.server.pid) - empty, "MB")
    yield Figure(f"{label}_load", loaded, "s")


def _wait_until_loaded(board: Board) -> None:
    """The service reads its history in the background, and takes no processor time once it is done."""
    deadline = time.monotonic() + LOADED_SECONDS
    spent = -1.0
    while (now := board.server.cpu()) - spent > 0.02 and time.monotonic() < deadline:
        spent = now
        time.sleep(0.5)


@benchmark
def grep_mariadb(bench: Bench) -> Iterator[Figure]:
    """All queries in turn, one client, on a service that has just started."""
    database = bench.mariadb.new_database()
    board = bench.serve(database)
    seed_mariadb(bench.mariadb, database, "grep", bench.entries)
    yield from _greps(bench, board, "grep", "mariadb")


@benchmark
def grep_sqlite(bench: Bench) -> Iterator[Figure]:
    """The same on SQLite."""
    path = bench.folder / "grep.sqlite3"
    seed_sqlite(path, "grep", bench.entries)
    board = bench.serve(f"sqlite+aiosqlite:///{path}")
    yield from _greps(bench, board, "grep", "sqlite")
