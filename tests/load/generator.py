"""The load generator: a process of its own that costs little, so that what is measured is the server.

Raw HTTP/1.1 over kept connections. It reads a plan as JSON from stdin and writes what it saw as JSON to stdout, its own
processor time among it. Latency is from the write of a request to the last byte of its answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import uvloop
from pydantic import BaseModel

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENT_ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)
_LABEL = re.compile(rb'"gist_id":\s*(\d+)')
CONNECT_SECONDS = 20.0


class Plan(BaseModel):
    """What to send where."""

    host: str
    port: int
    mode: Literal["closed", "burst", "fanout"] = "closed"
    """`closed`: each client sends its request again once it is answered. `burst`: all connect and ask at one moment.
    `fanout`: the first client writes, the others are streams."""
    seconds: float = 3.0
    warmup: float = 0.5
    """Seconds before the measured ones; not counted."""
    requests: list[str]
    """The bytes of each client's request, as text."""
    writes: int = 0
    """Fan-out: how many entries are written."""
    spacing: float = 0.0
    """Seconds between an answer and the next request of the same client."""


class Seen(BaseModel):
    """What came of a plan; times in seconds."""

    answered: int = 0
    failures: int = 0
    statuses: dict[int, int] = {}
    seconds: float = 0.0
    rate: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0
    cpu: float = 0.0
    """Processor seconds of the generator itself in the measured time."""
    answer_p50: float = 0.0
    """Fan-out: until the writer had its answer."""


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the sorted `values` lie; 0 for none."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class _Client(asyncio.Protocol):
    """One kept connection that has at most one request under way."""

    def __init__(self, request: bytes, on_answer: Callable[[_Client, int, bytes], None]) -> None:
        self.request = request
        self.sent_at = 0.0
        self.lost = False
        self._on_answer = on_answer
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.sent_at:
            self._on_answer(self, 0, b"")

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self._transport.write(self.request)

    def close(self) -> None:
        self.sent_at = 0.0
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        length = _LENGTH.search(buffer, 0, end + 2) if end >= 0 else None
        if length is None or len(buffer) < end + 4 + int(length[1]):
            self._buffer = buffer
            return
        self._buffer = b""
        self._on_answer(self, int(buffer[9:12]), buffer[end + 4 :])


class _Stream(asyncio.Protocol):
    """One subscriber of server-sent events."""

    def __init__(self, request: bytes, on_event: Callable[[int], None]) -> None:
        self._request = request
        self._on_event = on_event
        self._buffer = b""
        self.open = asyncio.Event()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if b"retry: 1000" in data:
            self.open.set()
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n\n")
        for match in _EVENT_ID.finditer(whole):
            self._on_event(int(match[1]))

    def close(self) -> None:
        self._transport.abort()


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class _Run:
    """Clients that keep asking, and what they saw."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._latencies: list[float] = []
        self._statuses: Counter[int] = Counter()
        self._measuring = False
        self._over = False
        self._left = 0
        self._done = asyncio.Event()

    def _counted(self, client: _Client, status: int) -> None:
        if self._measuring:
            self._latencies.append(time.perf_counter() - client.sent_at)
            self._statuses[status] += 1

    def _again(self, client: _Client, status: int, body: bytes) -> None:
        self._counted(client, status)
        client.sent_at = 0.0
        if self._over or client.lost:
            return
        if self._plan.spacing:
            asyncio.get_running_loop().call_later(self._plan.spacing, self._next, client)
        else:
            client.send()

    def _next(self, client: _Client) -> None:
        if not self._over and not client.lost:
            client.send()

    def _once(self, client: _Client, status: int, body: bytes) -> None:
        self._counted(client, status)
        client.sent_at = 0.0
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _connect(self, on_answer: Callable[[_Client, int, bytes], None]) -> list[_Client]:
        loop, plan = asyncio.get_running_loop(), self._plan
        clients = [_Client(request.encode(), on_answer) for request in plan.requests]
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.gather(
                *(loop.create_connection(lambda c=client: c, plan.host, plan.port) for client in clients)  # type: ignore[misc]
            )
        return clients

    async def closed(self) -> Seen:
        clients = await self._connect(self._again)
        for client in clients:
            client.send()
        await asyncio.sleep(self._plan.warmup)
        started, cpu = time.perf_counter(), _cpu()
        self._measuring = True
        await asyncio.sleep(self._plan.seconds)
        seen = self._seen(time.perf_counter() - started, _cpu() - cpu)
        self._over, self._measuring = True, False
        for client in clients:
            client.close()
        return seen

    async def burst(self) -> Seen:
        """Connect all clients at one moment and let each ask once, as soon as it is connected."""
        loop, plan = asyncio.get_running_loop(), self._plan
        self._left = len(plan.requests)
        self._measuring = True
        started, cpu = time.perf_counter(), _cpu()

        async def one(request: str) -> _Client:
            client = _Client(request.encode(), self._once)
            await loop.create_connection(lambda: client, plan.host, plan.port)
            client.send()
            client.sent_at = started  # the wait for the connection counts
            return client

        async with asyncio.timeout(CONNECT_SECONDS):
            clients = await asyncio.gather(*(one(request) for request in plan.requests))
            await self._done.wait()
        seen = self._seen(time.perf_counter() - started, _cpu() - cpu)
        for client in clients:
            client.close()
        return seen

    async def fanout(self) -> Seen:
        """Write entries one by one; a latency is from the write to the last subscriber that has the entry."""
        loop, plan = asyncio.get_running_loop(), self._plan
        arrived: dict[int, list[float]] = {}
        answers: list[float] = []
        written: dict[int, float] = {}
        complete = asyncio.Event()
        subscribers = len(plan.requests) - 1

        def on_event(seq: int) -> None:
            arrived.setdefault(seq, []).append(time.perf_counter())
            complete.set()

        def on_answer(client: _Client, status: int, body: bytes) -> None:
            self._statuses[status] += 1
            answers.append(time.perf_counter() - client.sent_at)
            label = _LABEL.search(body)
            if label is not None:
                written[int(label[1])] = client.sent_at
            client.sent_at = 0.0
            complete.set()

        streams = [_Stream(request.encode(), on_event) for request in plan.requests[1:]]
        writer = _Client(plan.requests[0].encode(), on_answer)
        started, cpu = time.perf_counter(), _cpu()
        async with asyncio.timeout(CONNECT_SECONDS + plan.writes * (0.2 + plan.spacing)):
            for protocol in (*streams, writer):
                await loop.create_connection(lambda p=protocol: p, plan.host, plan.port)  # type: ignore[misc]
            for stream in streams:
                await stream.open.wait()
            for number in range(1, plan.writes + 1):
                writer.send()
                while len(answers) < number or any(len(arrived.get(seq, ())) < subscribers for seq in written):
                    complete.clear()
                    await complete.wait()
                await asyncio.sleep(plan.spacing)
        self._latencies = [max(arrived[seq]) - sent for seq, sent in written.items()]
        seen = self._seen(time.perf_counter() - started, _cpu() - cpu)
        seen.answer_p50 = percentile(sorted(answers), 0.5)
        for stream in streams:
            stream.close()
        writer.close()
        return seen

    def _seen(self, seconds: float, cpu: float) -> Seen:
        values = sorted(self._latencies)
        return Seen(
            answered=len(values),
            failures=sum(count for status, count in self._statuses.items() if not 200 <= status < 300),
            statuses=dict(self._statuses),
            seconds=seconds,
            rate=len(values) / seconds,
            p50=percentile(values, 0.5),
            p99=percentile(values, 0.99),
            longest=values[-1] if values else 0.0,
            cpu=cpu,
        )


async def run(plan: Plan) -> Seen:
    """Carry out a plan in this process."""
    return await getattr(_Run(plan), plan.mode)()  # type: ignore[no-any-return]


def request(method: str, path: str, *, token: str = "", body: Any = None) -> str:
    """Return the bytes of a request, as text."""
    data = "" if body is None else json.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", "Accept: application/json, text/event-stream, */*"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", data])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    socket.setdefaulttimeout(CONNECT_SECONDS)
    result = uvloop.run(run(Plan.model_validate_json(sys.stdin.read())))
    sys.stdout.write(result.model_dump_json() + "\n")
