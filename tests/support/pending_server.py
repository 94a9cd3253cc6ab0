"""A `/pending/{worker}` that misbehaves on demand, in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class PendingServer(ThreadingHTTPServer):
    """Answers like the board: everything unacknowledged, again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.notices: list[tuple[int, str]] = []
        self.acknowledged = 0
        self.queries: list[dict[str, str]] = []
        self.connections = 0
        self.mode = "ok"
        """`ok`, `hang`, `garbage`, `close` (after each answer), or a status."""
        self.released = threading.Event()
        self.token = "secret-token"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def post(self, seq: int, text: str) -> None:
        self.notices.append((seq, text))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PendingServer

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def do_GET(self) -> None:
        server = self.server
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        server.queries.append({"path": parts.path, **query})
        if server.mode == "hang":
            server.released.wait(30)
        if server.mode.isdecimal():
            self._answer(int(server.mode), b"{}")
        elif self.headers.get("Authorization") != f"Bearer {server.token}":
            self._answer(401, b"{}")
        elif server.mode == "garbage":
            self._answer(200, b"<html>")
        else:
            server.acknowledged = max(server.acknowledged, int(query.get("ack", 0)))
            waiting = [(seq, text) for seq, text in server.notices if seq > server.acknowledged]
            body = {
                "agent": "demo-worker1",
                "notices": [{"id": f"g{seq}", "text": text} for seq, text in waiting],
                "cursor": max([0, *(seq for seq, _ in server.notices)]),
            }
            self._answer(200, json.dumps(body).encode())
            if server.mode == "close":
                self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def pending_server() -> Iterator[PendingServer]:
    """Serve until the block ends."""
    server = PendingServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
