"""The HTTP protocol of our servers: uvicorn's on httptools, with bounds on what comes before a request's body.

uvicorn bounds neither the size of the headers nor the time they may take, so one silent or endless client would hold a
connection, or memory, for ever. Bodies are bounded by the applications.

It also tells an application what became of an answer after it was handed to the kernel (`arrived_on`).
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 * 1024  # request line and headers
HEAD_SECONDS = 20.0  # from the connection, or from a request's first byte, to the end of its headers
_CONNECTION = "agensh.connection"


class Connection:
    """One connection of a client."""

    def __init__(self) -> None:
        self.broken = False
        """It ended before everything that was written to it had arrived at the other machine."""

    def whole(self) -> bool:
        """Say whether nothing is known to be lost on it."""
        return not self.broken


def arrived_on(scope: MutableMapping[str, Any]) -> Callable[[], bool]:
    """Return what says later whether the answer to the request of an ASGI `scope` may have arrived.

    False: the connection was reset, or it was idle and the other machine had not confirmed all bytes when its time was
    over. True is no proof; the client's next request may be one.
    """
    connection = scope.get(_CONNECTION)
    return connection.whole if isinstance(connection, Connection) else _unknown


def _unknown() -> bool:
    return True


def _unconfirmed(transport: asyncio.Transport) -> int:
    """Return how many bytes were written that the other machine has not confirmed; 0 where the system does not say."""
    waiting = transport.get_write_buffer_size()
    try:
        number = transport.get_extra_info("socket").fileno()
        (in_kernel,) = struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, struct.pack("i", 0)))
    except (OSError, AttributeError, ValueError):
        return waiting
    return waiting + int(in_kernel)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request does not get to its body in time, or in bounds (431)."""

    head_bytes = HEAD_BYTES
    head_seconds = HEAD_SECONDS
    _in_head = False
    _upgraded = False
    _head_size = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._connection = Connection()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._connection.broken |= exc is not None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        known = self._head_size if self._in_head else 0
        super().data_received(data)
        if self._upgraded or self.transport.is_closing():
            return
        if self._in_head:
            self._head_size = known + len(data)
            if self._head_size > self.head_bytes:
                self._refuse()
                return
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()

    def timeout_keep_alive_handler(self) -> None:
        # Seconds after the last answer. Right after one, as when a client wants the connection closed, it says nothing.
        self._connection.broken |= _unconfirmed(self.transport) > 0
        super().timeout_keep_alive_handler()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[_CONNECTION] = self._connection  # type: ignore[literal-required]
        self._in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_came()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.head_seconds, self._too_late)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self) -> None:
        text = b"The headers are too large.\n"
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(text), text)
        )
        self.transport.close()
