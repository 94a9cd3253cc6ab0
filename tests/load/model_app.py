"""A provider that costs little: `python -m tests.load.model_app EVENTS MILLISECONDS`, for `tests.load.gateway`.

Every request is answered with a Responses stream of so many deltas, one each so many milliseconds (0: all as fast as
the connection takes them), and the event that tells the usage.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import uvloop

from agensh.serving import open_socket

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(name: str, value: object) -> bytes:
    data = f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


_DELTA = _chunk(
    "response.output_text.delta",
    {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "output_index": 0,
     "content_index": 0, "delta": " word", "logprobs": [], "obfuscation": "abcdefghij"},
)  # fmt: skip
_LAST = (
    _chunk(
        "response.completed",
        {"type": "response.completed", "response": {"id": "r", "usage": {"input_tokens": 9, "output_tokens": 9}}},
    )
    + b"0\r\n\r\n"
)


class _Connection(asyncio.Protocol):
    def __init__(self, events: int, pause: float) -> None:
        self._events = events
        self._pause = pause
        self._buffer = b""
        self._writing = asyncio.Event()
        self._writing.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:  # uvloop's is no subclass of asyncio's
        self._transport = transport

    def pause_writing(self) -> None:
        self._writing.clear()

    def resume_writing(self) -> None:
        self._writing.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        length = _LENGTH.search(self._buffer, 0, end + 2) if end >= 0 else None
        if length is not None and len(self._buffer) >= end + 4 + int(length[1]):
            self._buffer = b""
            self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self) -> None:
        write = self._transport.write
        write(_HEAD + _DELTA)
        for _ in range(self._events - 1):
            if self._pause:
                await asyncio.sleep(self._pause)
            elif not self._writing.is_set():
                await self._writing.wait()
            write(_DELTA)
        write(_LAST)


async def main(events: int, pause: float) -> None:
    """Serve until SIGTERM."""
    listening = open_socket("127.0.0.1", 0, "model")
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(events, pause), sock=listening)
    sys.stderr.write(f"model: http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stderr.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
