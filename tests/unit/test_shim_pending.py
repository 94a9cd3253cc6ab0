"""The shim's thread that asks for notices, and the one that hangs up on it, at an unlucky moment."""

from __future__ import annotations

import socket
import time
from typing import Any

from router.mcp.pending import LONGEST_ANSWER, Identity, PendingFeed


class Closing:
    """A connection that the asking thread closes while the other one looks at it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socks: list[socket.socket | None] = [sock, None]

    @property
    def sock(self) -> socket.socket | None:
        return self._socks.pop(0)


def test_a_connection_that_closes_while_it_is_hung_up_stops_no_result() -> None:
    feed: Any = PendingFeed(Identity("http://127.0.0.1:1/pending/w1", "token"), lambda _sentence: None)
    near, far = socket.socketpair()
    with near, far:
        feed._connection = Closing(near)
        feed._asked_at = time.monotonic() - LONGEST_ANSWER - 1
        feed._busy = 2
        assert feed.take() is None
        assert far.recv(1) == b"", "the request under way has failed"
