"""The shim's view of what waits for its worker. Standard library only.

One thread asks `/pending/{worker}` over a kept connection. Whoever writes a tool result waits for it at most `PATIENCE`
and goes on without a notice after that; after a failure nobody asks, and nobody waits, until the pause is over.
At least once: a notice counts as shown when its result was written, and is acknowledged when the next call comes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from router.mcp.ledger import Ledger
from router.mcp.notices import NOTICE_ROOM, RenderedNotice

PATIENCE = 0.5  # seconds a tool result waits for the answer
TIMEOUT = 2.0  # seconds between two pieces of an answer
LONGEST_ANSWER = 10.0  # seconds for all of one; who sends byte by byte keeps within TIMEOUT
FIRST_PAUSE = 2.0  # seconds without asking after a failure; doubles
LONGEST_PAUSE = 60.0  # seconds
ANSWER_LIMIT = 4 * 1024 * 1024  # bytes


class Identity:
    """Where to ask and as whom."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    @classmethod
    def from_environment(cls, environment: dict[str, str]) -> Identity | str:
        """Read the variables a worker's process has; the sentence to show when one is missing."""
        token = environment.get("AGENSH_MCP_TOKEN", "")
        url = environment.get("AGENSH_PENDING_URL", "")
        if url:
            token = token or environment.get("AGENSH_BOARD_TOKEN", "")
        else:
            board = environment.get("AGENSH_BOARD_URL", "")
            worker = environment.get("AGENSH_WORKER", "")
            token = environment.get("AGENSH_BOARD_TOKEN", "") or token
            if not board or not worker:
                return "set AGENSH_PENDING_URL, or AGENSH_BOARD_URL and AGENSH_WORKER, so that notices can be fetched."
            url = f"{board.rstrip('/')}/pending/{quote(worker, safe='')}"
            if environment.get("AGENSH_BOARD"):
                url += f"?board={quote(environment['AGENSH_BOARD'], safe='')}"
        if not token:
            return "set AGENSH_BOARD_TOKEN (or AGENSH_MCP_TOKEN): notices are shown to their owner only."
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return f"{url!r} is not an http:// or https:// URL; check AGENSH_PENDING_URL or AGENSH_BOARD_URL."
        return cls(url, token)


@dataclass(slots=True)
class _Job:
    room: int
    """0: only acknowledge."""
    done: threading.Event = field(default_factory=threading.Event)


class PendingFeed:
    """Fetches notices, hands them out once, and acknowledges them."""

    def __init__(self, identity: Identity, complain: Callable[[str], None]) -> None:
        parts = urlsplit(identity.url)
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}&" if parts.query else "?")
        self._headers = {"Authorization": f"Bearer {identity.token}", "Accept": "application/json"}
        self._complain = complain
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._busy = 0
        self._connection: http.client.HTTPConnection | None = None
        self._asked_at = 0.0
        """When the request under way was sent; 0 when none is."""
        self._failures = 0
        self._paused_until = 0.0
        self._reader = os.urandom(8).hex()
        self._ledger = Ledger()
        self._written = 0
        self._proved = 0
        threading.Thread(target=self._run, name="pending", daemon=True).start()

    def next_call(self) -> None:
        """The client sent its next call: what was written before has arrived."""
        with self._lock:
            self._proved = self._written
            if self._proved <= self._ledger.acknowledged or self._busy or time.monotonic() < self._paused_until:
                return
            self._busy += 1
            self._jobs.put(_Job(0))

    def take(self, room: int = NOTICE_ROOM) -> RenderedNotice | None:
        """Return what waits in at most `room` characters, asking first; waits at most `PATIENCE` seconds.

        While the other side fails, it is asked now and then and nobody waits for the answer.
        """
        job = None
        with self._lock:
            if self._asked_at and time.monotonic() - self._asked_at > LONGEST_ANSWER:
                self._hang_up()
            patient = self._failures == 0
            if self._busy < 2 and time.monotonic() >= self._paused_until:
                self._busy += 1
                job = _Job(room)
                self._jobs.put(job)
        if job is not None and patient:
            job.done.wait(PATIENCE)
        with self._lock:
            return self._ledger.take(room)

    def written(self) -> None:
        """The result with what `take` returned goes out to the client."""
        with self._lock:
            self._written = self._ledger.provable()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                self._ask(job.room)
            except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
                self._failed(f"{type(error).__name__}: {error}")
            finally:
                with self._lock:
                    self._busy -= 1
                job.done.set()

    def _ask(self, room: int) -> None:
        with self._lock:
            proved = self._proved
            got = self._ledger.cursor
        query = f"room={room}&reader={self._reader}&got={got}"
        query += f"&ack={proved}" if proved > self._ledger.acknowledged else ""
        status, body = self._get(self._path + query)
        if status != 200:
            self._close()
            hint = "; check AGENSH_WORKER and the token" if status in (401, 403, 404) else ""
            self._failed(f"it answered {status}{hint}")
            return
        answer = json.loads(body)
        notices = [(str(notice["id"]), str(notice["text"])) for notice in answer["notices"]]
        with self._lock:
            self._failures = 0
            self._ledger.acknowledged = max(self._ledger.acknowledged, proved)
            self._ledger.merge(
                notices,
                int(answer["cursor"]),
                more=int(answer.get("more") or 0),
                handed_out=bool(answer.get("handed_out")),
            )

    def _get(self, path: str) -> tuple[int, bytes]:
        kept = self._connection is not None
        try:
            return self._once(path)
        except (http.client.HTTPException, ConnectionError):
            self._close()
            if not kept:
                raise
            # The server closed the kept connection meanwhile; a new one tells whether it is there.
            return self._once(path)
        except OSError:
            self._close()
            raise

    def _once(self, path: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._kind(self._host, self._port, timeout=TIMEOUT)
        self._asked_at = time.monotonic()
        try:
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            body = response.read(ANSWER_LIMIT)
        finally:
            self._asked_at = 0.0
        if len(body) == ANSWER_LIMIT:
            self._close()
            raise ValueError(f"the answer is longer than {ANSWER_LIMIT} bytes")
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return response.status, body

    def _hang_up(self) -> None:
        """Let the request under way fail: its thread is blocked, and a shutdown wakes it."""
        connection = self._connection
        sock = connection.sock if connection is not None else None  # once: that thread may be closing it
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, reason: str) -> None:
        self._close()
        with self._lock:
            self._failures += 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
            self._paused_until = time.monotonic() + pause
            first = self._failures == 1
        if first:
            self._complain(f"no notices from {self._host} for now ({reason}); the tools go on without them.")


def pending_answer(worker: str, lines: list[tuple[str, str]], *, cursor: int, more: int) -> dict[str, Any]:
    """Return a node host's answer: the board's shape, and that each notice is handed out once."""
    return {
        "agent": worker,
        "notices": [{"id": ref, "text": line} for ref, line in lines],
        "cursor": cursor,
        "more": more,
        "handed_out": True,
    }
