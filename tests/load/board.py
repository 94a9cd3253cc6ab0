"""The board service on MariaDB: writes, polls, connections, health, stream."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import make_url

from tests.load.bench import WORKERS, Bench, benchmark, failures, median
from tests.load.figures import Figure, at_least, at_most
from tests.load.generator import Seen, request
from tests.load.inserts import inserts
from tests.load.seed import seed_mariadb

P50_MS = {1: 5.0, 8: 25.0, 64: 200.0}
POLLERS = 1024
SUBSCRIBERS = 16


def _ms(seconds: float) -> float:
    return seconds * 1000


@benchmark
def board_write(bench: Bench) -> Iterator[Figure]:
    """Closed loop of clients that write entries of 100 + 300 characters; floor: bare INSERT and commit."""
    port, database = bench.mariadb.port, make_url(bench.database).database or ""
    for clients, p50 in P50_MS.items():
        requests = bench.board.writes(clients)
        spent: list[float] = []

        def write(requests: list[str] = requests, spent: list[float] = spent) -> Seen:
            before = bench.board.server.cpu()
            seen = bench.load(bench.board.server, requests, warmup=0)
            spent.append((bench.board.server.cpu() - before) / max(1, seen.answered))
            return seen

        def insert(clients: int = clients) -> Seen:
            return inserts(port, database, clients, bench.seconds)

        writes, floor = bench.alternate(write, insert)
        failures("board_write", writes)
        name = f"board_write_{clients}"
        at_64 = clients == WORKERS
        wanted = (at_least(0.5, "ratio"), *((at_least(500),) if at_64 else ()))
        yield Figure(f"{name}_rate", median(writes, "rate"), "/s", median(floor, "rate"), wanted)
        yield Figure(f"{name}_p50", _ms(median(writes, "p50")), "ms", _ms(median(floor, "p50")), (at_most(p50),))
        tail = (at_most(500),) if at_64 else ()
        yield Figure(f"{name}_p99", _ms(median(writes, "p99")), "ms", _ms(median(floor, "p99")), tail)
        yield Figure(f"{name}_cpu", min(spent) * 1e6, "us")


@benchmark
def pending(bench: Bench) -> Iterator[Figure]:
    """Polls with nothing new; floor: a bare FastAPI endpoint with as many clients."""
    board, floor = bench.board, bench.floor
    for clients in (WORKERS, POLLERS):
        polls, bare = board.polls(clients), [request("GET", "/floor")] * clients
        ours, theirs = bench.alternate(lambda p=polls: bench.load(board.server, p), lambda b=bare: bench.load(floor, b))  # type: ignore[misc]
        failures("pending", ours, theirs)
        wanted = (at_least(0.6, "ratio"), *((at_least(900),) if clients == WORKERS else ()))
        name = f"pending_{clients}"
        yield Figure(f"{name}_rate", median(ours, "rate"), "/s", median(theirs, "rate"), wanted)
        yield Figure(f"{name}_p50", _ms(median(ours, "p50")), "ms", _ms(median(theirs, "p50")))
        yield Figure(f"{name}_p99", _ms(median(ours, "p99")), "ms", _ms(median(theirs, "p99")))
    yield Figure("generator_cpu", min(one.cpu / one.answered for one in ours) * 1e6, "us")


@benchmark
def pending_history(bench: Bench) -> Iterator[Figure]:
    """The same poll on a board with a long history; floor: on one with 1,000 entries, same process."""
    board = bench.board
    seed_mariadb(bench.mariadb, bench.database, "short", 1000)
    seed_mariadb(bench.mariadb, bench.database, "long", bench.entries)
    short, long = board.polls(WORKERS, "short"), board.polls(WORKERS, "long")
    board.http.get("/board/long/grep", params={"q": "nothing has this"})  # the history is in memory from here on
    on_short, on_long = bench.alternate(lambda: bench.load(board.server, short), lambda: bench.load(board.server, long))
    failures("pending_history", on_short, on_long)
    wanted = (at_most(1.2, "ratio"),)
    yield Figure("pending_long_history_p50", _ms(median(on_long, "p50")), "ms", _ms(median(on_short, "p50")), wanted)


@benchmark
def connections(bench: Bench) -> Iterator[Figure]:
    """1,024 clients that connect and ask at one moment; floor: the same on the bare endpoint."""
    polls, bare = bench.board.polls(POLLERS), [request("GET", "/floor")] * POLLERS
    ours, theirs = bench.alternate(
        lambda: bench.load(bench.board.server, polls, mode="burst"), lambda: bench.load(bench.floor, bare, mode="burst")
    )
    failures("connections", ours, theirs)
    slowest = max(one.longest for one in ours)
    yield Figure("connections_1024_last", slowest, "s", max(one.longest for one in theirs), (at_most(2.0),))


@benchmark
def health(bench: Bench) -> Iterator[Figure]:
    """/healthz while 64 clients write; floor: while nobody does."""
    server, asks = bench.board.server, [request("GET", "/healthz")]
    writes = bench.board.writes(WORKERS)
    alone = bench.load(server, asks)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(bench.load, server, writes, seconds=bench.seconds + 1, warmup=0)
        busy = bench.load(server, asks)
        failures("health", [alone], [busy], [writing.result()])
    yield Figure("health_under_load_p50", _ms(busy.p50), "ms", _ms(alone.p50))
    yield Figure("health_under_load_p99", _ms(busy.p99), "ms", _ms(alone.p99))


@benchmark
def stream(bench: Bench) -> Iterator[Figure]:
    """From the write of an entry until the last of 16 subscribers has it; floor: until the writer has its answer."""
    board = bench.board
    head = board.http.get("/board/main", params={"limit": 1}).json()["head"]
    token = board.tokens("main")[1]
    streams = [request("GET", f"/board/main/stream?after={head}", token=token)] * SUBSCRIBERS
    before = board.server.cpu()
    seen = bench.load(board.server, [*board.writes(1), *streams], mode="fanout", writes=200)
    failures("stream", [seen])
    spent = (board.server.cpu() - before) / seen.answered
    yield Figure(f"stream_{SUBSCRIBERS}_p50", _ms(seen.p50), "ms", _ms(seen.answer_p50))
    yield Figure(f"stream_{SUBSCRIBERS}_p99", _ms(seen.p99), "ms")
    yield Figure(f"stream_{SUBSCRIBERS}_cpu", spent * 1e6, "us")
