"""The floor of writes: clients that do nothing but INSERT and commit, each on a connection of its own.

`python -m tests.load.inserts PORT DATABASE CLIENTS SECONDS` prints what it saw like the load generator.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import aiomysql
import uvloop

from tests.load.generator import Seen, _cpu, percentile

TABLE = (
    "CREATE TABLE IF NOT EXISTS floor_inserts (id BIGINT PRIMARY KEY AUTO_INCREMENT, worker VARCHAR(128) NOT NULL,"
    " content VARCHAR(300) NOT NULL, detail MEDIUMTEXT NOT NULL) ENGINE=InnoDB CHARACTER SET utf8mb4"
)
INSERT = "INSERT INTO floor_inserts (worker, content, detail) VALUES (%s, %s, %s)"
WARMUP = 0.5  # seconds


async def run(port: int, database: str, clients: int, seconds: float) -> Seen:
    """Let `clients` connections insert for `seconds`."""
    connections = [
        await aiomysql.connect(host="127.0.0.1", port=port, user="root", db=database, charset="utf8mb4")
        for _ in range(clients)
    ]
    async with connections[0].cursor() as cursor:
        await cursor.execute(TABLE)
    latencies: list[float] = []
    begin = time.perf_counter() + WARMUP
    end = begin + seconds

    async def insert(connection: Any, number: int) -> None:
        values = (f"bench-worker{number}", "c" * 100, "d" * 300)
        async with connection.cursor() as cursor:
            while (started := time.perf_counter()) < end:
                await cursor.execute(INSERT, values)
                await connection.commit()
                if started >= begin:
                    latencies.append(time.perf_counter() - started)

    cpu = _cpu()
    await asyncio.gather(*(insert(connection, number) for number, connection in enumerate(connections)))
    for connection in connections:
        connection.close()
    values = sorted(latencies)
    return Seen(
        answered=len(values),
        seconds=seconds,
        rate=len(values) / seconds,
        p50=percentile(values, 0.5),
        p99=percentile(values, 0.99),
        longest=values[-1] if values else 0.0,
        cpu=_cpu() - cpu,
    )


def inserts(port: int, database: str, clients: int, seconds: float) -> Seen:
    """Run the floor in a process of its own (blocking)."""
    command = [sys.executable, "-m", "tests.load.inserts", str(port), database, str(clients), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the bare inserts failed: {done.stderr[-2000:]}")
    return Seen.model_validate_json(done.stdout)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    seen = uvloop.run(run(int(arguments[0]), arguments[1], int(arguments[2]), float(arguments[3])))
    sys.stdout.write(seen.model_dump_json() + "\n")
