"""Readers of streams: a process that costs little. `python -m tests.load.streams PORT KEY CLIENTS SECONDS WARMUP`.

Each client asks, reads its stream to the end and asks again, over one kept connection.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from tests.load.generator import percentile, request

BODY = {"model": "gpt-5.4", "stream": True, "input": "x" * 50_000}
"""As large as a CLI's first request."""
_END = b"0\r\n\r\n"


class _Reader(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._head = b""
        self._in_body = False
        self._tail = b""
        self._asked = 0.0

    def connection_made(self, transport: Any) -> None:  # uvloop's is no subclass of asyncio's
        self.transport = transport
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._run.over:
            self._run.failures += 1

    def _ask(self) -> None:
        self._head, self._in_body, self._tail = b"", False, b""
        self._asked = time.perf_counter()
        self.transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        run = self._run
        if not self._in_body:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0 or len(self._head) == end + 4:
                return  # the first byte of the body is what counts
            if self._head[9:12] != b"200":
                run.failures += 1
            self._in_body = True
            data = self._head[end + 4 :]
            if run.measuring:
                run.firsts.append(time.perf_counter() - self._asked)
        if run.measuring:
            run.bytes += len(data)
        self._tail = (self._tail + data)[-5:]
        if self._tail == _END:
            if run.measuring:
                run.streams += 1
            if not run.over:
                self._ask()


class _Run:
    def __init__(self, port: int, key: str) -> None:
        self.request = request("POST", "/v1/responses", token=key, body=BODY).encode()
        self.port = port
        self.firsts: list[float] = []
        self.bytes = self.streams = self.failures = 0
        self.measuring = self.over = False

    async def run(self, clients: int, seconds: float, warmup: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        readers = [
            (await loop.create_connection(lambda: _Reader(self), "127.0.0.1", self.port))[1] for _ in range(clients)
        ]
        await asyncio.sleep(warmup)
        began, self.measuring = time.perf_counter(), True
        await asyncio.sleep(seconds)
        took, self.measuring, self.over = time.perf_counter() - began, False, True
        for reader in readers:
            reader.transport.abort()
        firsts = sorted(self.firsts)
        return {
            "streams": self.streams,
            "failures": self.failures,
            "first_p50": percentile(firsts, 0.5),
            "first_p99": percentile(firsts, 0.99),
            "bytes_per_second": self.bytes / took,
        }


if __name__ == "__main__":
    port, key, clients, seconds, warmup = sys.argv[1:]
    found = uvloop.run(_Run(int(port), key).run(int(clients), float(seconds), float(warmup)))
    sys.stdout.write(json.dumps(found) + "\n")
