"""A TCP proxy whose connections a test can cut, stall, starve, slow down, or answer in the server's place."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum


class Mode(Enum):
    """What becomes of the bytes that come in."""

    PASS = "pass"
    STALL = "stall"
    """No more is read (but what is on its way): the connection is open, and nobody is there."""
    SWALLOW = "swallow"
    """Everything is read and goes nowhere."""
    TRICKLE = "trickle"
    """What the server says goes on byte by byte."""


class TcpProxy:
    """Forwards to one address; `cut` resets every connection, `refuse` lets new ones fail, `mode` slows all."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mode = Mode.PASS
        self._changed = asyncio.Event()
        self._cuts: deque[int | None] = deque()
        self._dropping = False
        self.answers: deque[bytes] = deque()
        """Each is sent in place of the server's answer to what a client sends next, and ends that connection."""
        self.trickle_every = 0.02
        """Seconds between two bytes that trickle."""
        self.orderly = False
        """Let the server see an orderly end where a piece is cut, as behind a proxy that took the whole answer."""
        self.drop_answer_to = b""
        """The server gets the next piece with these bytes; its answer is lost, with all connections, old and new."""
        self.dropped = 0
        """How many answers were lost like that."""
        self.refuse = False
        self.refused = 0
        self.accepted = 0
        """Connections forwarded so far."""
        self.port = 0

    @property
    def url(self) -> str:
        """The server as seen through the proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def mode(self) -> Mode:
        """What becomes of the bytes of all connections, old and new."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._writers) // 2

    def cut_within(self, *lengths: int | None) -> None:
        """Cut the connections of the next pieces that the server sends, each after that many bytes; None: let it be."""
        self._cuts.extend(lengths)

    @property
    def cuts_left(self) -> int:
        """How many of the pieces to cut have not come yet."""
        return len(self._cuts)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self.refuse:
            self.refused += 1
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            except OSError:
                writer.transport.abort()
                return
            self._writers |= {writer, far_writer}
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._up(reader, far_writer, writer))
                    group.create_task(self._down(far_reader, writer, far_writer))
            finally:
                self._writers -= {writer, far_writer}
                for end in (writer, far_writer):
                    end.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _up(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await self._read(reader):
                if self.answers:
                    client.write(self.answers.popleft())
                    client.write_eof()
                    await client.drain()
                    await reader.read()  # a close with unread bytes would be a reset, which may overtake the answer
                    break
                if self.drop_answer_to and self.drop_answer_to in data:
                    self.drop_answer_to = b""
                    self._dropping = True
                if self._mode is not Mode.SWALLOW:
                    server.write(data)
                    await server.drain()
        except OSError:
            pass
        server.transport.abort()

    async def _down(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await self._read(reader):
                if self._dropping:
                    self._dropping = False
                    self.dropped += 1
                    self.refuse = True
                    self.cut()
                    break
                length = self._cuts.popleft() if self._cuts else None
                if length is not None:
                    client.write(data[:length])
                    await client.drain()
                    if not self.orderly:
                        _reset(server)
                    server.transport.abort()
                    break
                if self._mode is Mode.TRICKLE:
                    await self._trickle(data, client)
                elif self._mode is not Mode.SWALLOW:
                    client.write(data)
                    await client.drain()
        except OSError:
            pass
        client.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.read(65536)
        while self._mode is Mode.STALL:
            await self._changed.wait()
        return data

    async def _trickle(self, data: bytes, client: asyncio.StreamWriter) -> None:
        for index in range(len(data)):
            client.write(data[index : index + 1])
            await client.drain()
            if self._mode is Mode.TRICKLE:
                await asyncio.sleep(self.trickle_every)

    def cut(self) -> int:
        """Reset every open connection on both sides; return how many ends there were."""
        writers = list(self._writers)
        for writer in writers:
            _reset(writer)
        return len(writers)

    async def close(self) -> None:
        """End everything."""
        self.refuse = True
        self.mode = Mode.PASS
        while self._tasks:
            self.cut()
            # Not cancelled: the streams' own callbacks complain of tasks that are.
            await asyncio.wait(self._tasks, timeout=0.1)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that its other end is told of an error, not of an orderly end."""
    if not writer.transport.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@asynccontextmanager
async def tcp_proxy(port: int) -> AsyncIterator[TcpProxy]:
    """Yield a proxy on a free port before `port` of this machine."""
    proxy = TcpProxy(port)
    server = await asyncio.start_server(proxy.forward, "127.0.0.1", 0)
    proxy.port = int(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
