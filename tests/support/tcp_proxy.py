"""A TCP proxy whose connections a test can cut or stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TcpProxy:
    """Forwards to one address; `cut` resets every connection, `refuse` lets new ones fail."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refuse = False
        self.accepted = 0
        """Connections forwarded so far."""
        self.port = 0

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self.refuse:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, far_writer}
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, far_writer))
                    group.create_task(_pump(far_reader, writer))
            finally:
                self._writers -= {writer, far_writer}
                for end in (writer, far_writer):
                    end.transport.abort()
        finally:
            self._tasks.discard(task)

    def cut(self) -> int:
        """Reset every open connection on both sides; return how many ends there were."""
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers)

    async def close(self) -> None:
        """End everything."""
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
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
