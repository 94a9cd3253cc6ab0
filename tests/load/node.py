"""The node host: notices in MCP calls, the stdio shim, the queue of events."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import httpx
from sqlalchemy import make_url

from agensh.clock import SystemClock
from agensh.urls import sqlite_url
from router.queue import EventQueue, RetryPolicy
from tests.load.bench import Bench, benchmark, failures, median
from tests.load.figures import Figure, at_most
from tests.load.generator import Seen, request
from tests.load.inserts import inserts
from tests.load.processes import Server, resident, started
from tests.support.router_database import open_writer
from tests.support.router_stage import comment

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "arguments": {}}}
SPACING = 0.002  # seconds between two calls: what a call leaves to be done after its answer does not meet the next
SHIM_CALLS = 1000
QUEUE_CYCLES = 200
QUEUE_WORKERS = 64


@benchmark
def notices(bench: Bench) -> Iterator[Figure]:
    """A tool call at a node host's endpoint; floor: the same tool on the bare low-level server."""
    with ExitStack() as stack:
        servers = {
            mode: stack.enter_context(
                started(["-m", "tests.load.mcp_app", mode, str(bench.folder / f"mcp-{mode}")], "mcp:")
            )
            for mode in ("bare", "quiet", "notice")
        }
        spent: dict[str, list[float]] = {mode: [] for mode in servers}

        def call(mode: str) -> Seen:
            server = servers[mode]
            before = server.cpu()
            seen = bench.load(server, _calls(1), warmup=0, spacing=SPACING)
            spent[mode].append((server.cpu() - before) / max(1, seen.answered) * 1e6)
            return seen

        _check(servers)
        bare, quiet, notice = bench.alternate(*(lambda m=mode: call(m) for mode in servers))
        failures("notices", bare, quiet, notice)
        floor, wanted = median(bare, "p50") * 1000, (at_most(1.15, "ratio"),)
        yield Figure("mcp_call_p50", median(quiet, "p50") * 1000, "ms", floor, wanted)
        yield Figure("mcp_call_notice_p50", median(notice, "p50") * 1000, "ms", floor)
        cpu = statistics.median(spent["bare"])
        yield Figure("mcp_call_cpu", statistics.median(spent["quiet"]), "us", cpu, wanted)
        yield Figure("mcp_call_notice_cpu", statistics.median(spent["notice"]), "us", cpu)


def _calls(clients: int) -> list[str]:
    return [
        request("POST", f"/mcp/bench-worker{number}", token=f"token-of-bench-worker{number}", body=CALL)
        for number in range(1, clients + 1)
    ]


def _check(servers: Mapping[str, Server]) -> None:
    """RuntimeError unless each server does what it is measured for."""
    for mode, server in servers.items():
        answer = httpx.post(
            f"http://127.0.0.1:{server.port}/mcp/bench-worker1",
            json=CALL,
            headers={"Authorization": "Bearer token-of-bench-worker1", "Accept": "application/json, text/event-stream"},
            trust_env=False,
        )
        if "what the tool found" not in answer.text or ("[agensh notices]" in answer.text) != (mode == "notice"):
            raise RuntimeError(f"the {mode} MCP server answered {answer.status_code}: {answer.text[:300]}")


@benchmark
def shim(bench: Bench) -> Iterator[Figure]:
    """A call through `agensh shim`; floor: the same server without it."""
    server = [sys.executable, "-m", "tests.load.stdio_server"]
    with started(["-m", "tests.load.mcp_app", "quiet", str(bench.folder / "mcp-shim")], "mcp:") as endpoint:
        environment = {
            "AGENSH_PENDING_URL": f"http://127.0.0.1:{endpoint.port}/pending/bench-worker1",
            "AGENSH_MCP_TOKEN": "token-of-bench-worker1",
        }
        bare, _ = _stdio(server, {})
        wrapped, memory = _stdio([sys.executable, "-m", "agensh", "shim", "--", *server], environment)
    yield Figure("shim_call_p50", wrapped * 1000, "ms", bare * 1000)
    yield Figure("shim_overhead", (wrapped - bare) * 1000, "ms")
    yield Figure("shim_memory", memory, "MB", wanted=(at_most(30),))


def _stdio(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the median seconds of a call and the resident MB of the first process."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    latencies = []
    with process.stdin, process.stdout:
        for number in range(SHIM_CALLS):
            line = json.dumps(CALL | {"id": number}).encode() + b"\n"
            begun = time.perf_counter()
            process.stdin.write(line)
            answer = process.stdout.readline()
            while not answer.endswith(b"\n"):
                answer += process.stdout.readline()
            latencies.append(time.perf_counter() - begun)
        memory = resident(process.pid)
        process.stdin.close()
        process.wait(20)
    return statistics.median(latencies[SHIM_CALLS // 10 :]), memory


@benchmark
def queue(bench: Bench) -> Iterator[Figure]:
    """Put, claim and acknowledge one event; floor on MariaDB: bare INSERT and commit of one client."""
    url = bench.mariadb.new_database()
    floor = inserts(bench.mariadb.port, make_url(url).database or "", 1, bench.seconds)
    for kind, database in (("mariadb", url), ("sqlite", sqlite_url(bench.folder / "queue.sqlite3"))):
        one, many = asyncio.run(_cycles(database))
        yield Figure(f"queue_{kind}_p50", one * 1000, "ms", floor.p50 * 1000 if kind == "mariadb" else None)
        yield Figure(f"queue_{kind}_{QUEUE_WORKERS}_rate", many, "/s")


async def _cycles(url: str) -> tuple[float, float]:
    """Return the median seconds of one worker's cycle, and the cycles a second of 64 workers together."""
    clock = SystemClock()
    async with open_writer(url, clock) as writer:

        async def cycle(events: EventQueue, number: int) -> float:
            begun = time.perf_counter()
            await events.put([comment(number, "x")], {"gitea": str(number)})
            claim = await events.claim("session")
            assert claim is not None
            await events.ack([event.id for event in claim.events])
            return time.perf_counter() - begun

        async def cycles(events: EventQueue, count: int) -> list[float]:
            return [await cycle(events, number) for number in range(count)]

        def new(name: str) -> EventQueue:
            return EventQueue(name, writer, clock, RetryPolicy())

        alone = statistics.median(await cycles(new("bench-worker0"), QUEUE_CYCLES))
        begun = time.perf_counter()
        each = QUEUE_CYCLES // 10
        await asyncio.gather(*(cycles(new(f"bench-worker{number}"), each) for number in range(1, QUEUE_WORKERS + 1)))
        return alone, QUEUE_WORKERS * each / (time.perf_counter() - begun)
