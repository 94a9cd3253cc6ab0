"""The chat's push channel: Mattermost's websocket, with resume.

The token goes as a header on the upgrade itself: only then does the server resume a cut connection. A resumed
connection replays what was missed; a fresh one does not, and a jump in the sequence numbers means loss: both are
signalled (`fresh`, `gap`), and the consumer then reads the channels back over REST.

The reader never waits for the consumer: the server cuts off whoever leaves 256 events unread, and then not resumably.
What the consumer has not taken yet is kept across reconnects; when it becomes too much it is replaced by one `gap`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from agensh.clients.http import retry_after
from agensh.clients.mattermost_models import Post
from agensh.clock import Clock, SystemClock
from agensh.errors import ServiceError

log = logging.getLogger(__name__)

SERVICE = "The chat's websocket"
PING_INTERVAL = 30.0  # seconds
PONG_WAIT = 10.0  # seconds
OPEN_TIMEOUT = 15.0  # seconds
CLOSE_TIMEOUT = 2.0  # seconds
MAX_FRAME = 16 * 1024 * 1024  # bytes; the library's 1 MiB is less than the chat's largest frames
QUEUE_LIMIT = 4096  # signals
CLOSE_NO_PONG = 4000  # the codes of the official client
_DEAD = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class ChatSignal:
    """Something was pushed."""

    kind: Literal["posted", "fresh", "resumed", "gap", "direct_added", "dead_session"]
    post: Post | None = None
    channel_id: str = ""
    channel_type: str = ""
    """`O`, `P`, `D`, `G`."""
    channel_name: str = ""
    creator_id: str = ""
    """Of a direct channel that was added: the account that opened it."""


class PostedFrames:
    """Remembers the newest `posted` frames as read: a post of a channel comes to each of its members in the same words.

    One for all sockets of a process. Frames of one post differ in their number only, which stands at their end.
    """

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._read: dict[str, ChatSignal] = {}

    def find(self, frame: str) -> tuple[ChatSignal, int] | None:
        """Return what a frame that was read before says, and its number; None when it has to be read."""
        words, found, number = frame.rpartition('"seq":')
        signal = self._read.get(words) if found else None
        number = number.strip(" }")
        return (signal, int(number)) if signal is not None and number.isdecimal() else None

    def keep(self, frame: str, signal: ChatSignal) -> None:
        """Remember what a frame says; the oldest gives way."""
        words, found, number = frame.rpartition('"seq":')
        if found and number.strip(" }").isdecimal():
            self._read[words] = signal
            if len(self._read) > self._most:
                del self._read[next(iter(self._read))]


class MattermostSocket:
    """One account's websocket. `connect`, then iterate; the iteration ends with ServiceError when it is cut."""

    def __init__(self, url: str, token: str, clock: Clock | None = None, *, frames: PostedFrames | None = None) -> None:
        """`frames` may be shared by all sockets of a process."""
        self._frames = frames or PostedFrames(most=1)
        self._url = url.rstrip("/").replace("http", "ws", 1) + "/api/v4/websocket"
        self._token = token
        self._clock = clock or SystemClock()
        self._connection_id = ""
        self._next_seq = 0
        self._queue: deque[ChatSignal] = deque()
        self._wake = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: ServiceError | None = None
        self._reason = ""
        self._action_seq = 0
        self._settled = False
        self._answered = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self.disconnect()

    def forget(self) -> None:
        """Make the next connection a fresh one, and drop what was not taken: the consumer will read everything back."""
        self._connection_id, self._next_seq = "", 0
        self._queue.clear()

    async def disconnect(self) -> None:
        """Close the connection; `connect` may be called again and resumes if the server still knows it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def connect(self) -> None:
        """Open the connection, resuming the last one where possible; ServiceError when it cannot be opened."""
        await self.disconnect()
        query = ""
        if self._connection_id and self._next_seq > 0:
            query = "?" + urlencode({"connection_id": self._connection_id, "sequence_number": self._next_seq})
        try:
            self._socket = await connect(
                self._url + query,
                additional_headers={"Authorization": f"Bearer {self._token}"},
                user_agent_header="agensh",
                compression=None,
                proxy=None,
                max_size=MAX_FRAME,
                ping_interval=None,
                open_timeout=OPEN_TIMEOUT,
                close_timeout=CLOSE_TIMEOUT,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise ServiceError(
                SERVICE,
                status,
                "it refused the upgrade",
                retryable=status not in _DEAD,
                retry_after=retry_after(error.response.headers),
            ) from error
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ServiceError(SERVICE, 0, type(error).__name__, retryable=True) from error
        self._failure = None
        self._reason = ""
        self._settled = False
        self._answered = self._action_seq
        self._task = asyncio.create_task(self._run(self._socket), name="chat websocket")

    def __aiter__(self) -> AsyncGenerator[ChatSignal, None]:
        return self.signals()

    async def signals(self) -> AsyncGenerator[ChatSignal, None]:
        """Yield what is pushed; ServiceError once the connection is gone and everything received was yielded."""
        while True:
            while self._queue:
                yield self._queue.popleft()
            if self._failure is not None:
                raise self._failure
            if self._task is None:
                raise ServiceError(SERVICE, 0, "it is not connected", retryable=True)
            self._wake.clear()
            await self._wake.wait()

    async def _run(self, socket: ClientConnection) -> None:
        reason = "it was closed"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(socket))
                group.create_task(self._ping(socket))
        except* (ConnectionClosed, OSError) as errors:
            closed = errors.exceptions[0]
            if isinstance(closed, ConnectionClosed) and closed.rcvd is not None:
                reason = f"it was closed with code {closed.rcvd.code}"
        finally:
            self._failure = ServiceError(SERVICE, 0, self._reason or reason, retryable=True)
            self._wake.set()

    async def _ping(self, socket: ClientConnection) -> None:
        while True:
            self._action_seq += 1
            sent = self._action_seq
            await socket.send(json.dumps({"seq": sent, "action": "ping"}))
            await self._clock.sleep(PONG_WAIT)
            if self._answered < sent:
                self._reason = f"no answer to a ping within {PONG_WAIT:g} s"
                await socket.close(CLOSE_NO_PONG, "no answer to a ping")
                return
            await self._clock.sleep(PING_INTERVAL - PONG_WAIT)

    async def _read(self, socket: ClientConnection) -> None:
        while True:
            frame = await socket.recv(decode=True)
            known = self._frames.find(frame)
            if known is not None:
                self._number(known[1])
                self._put(known[0])
                continue
            try:
                value = json.loads(frame)
                if "event" in value:
                    self._take_event(value, frame)
                elif "seq_reply" in value:
                    await self._take_reply(socket, value)
            except (ValueError, TypeError, AttributeError):
                log.warning("a frame of the chat is not understood", extra={"length": len(frame)})

    async def _take_reply(self, socket: ClientConnection, value: Mapping[str, Any]) -> None:
        self._answered = max(self._answered, int(value.get("seq_reply") or 0))
        if value.get("status") == "FAIL":
            status = int((value.get("error") or {}).get("status_code") or 0)
            if status in _DEAD:
                self._reason = "the session is not valid any more"
                self._put(ChatSignal("dead_session"))
                await socket.close()
            return
        if not self._settled:
            self._settled = True
            self._put(ChatSignal("resumed"))

    def _take_event(self, value: Mapping[str, Any], frame: str) -> None:
        data, broadcast = value.get("data") or {}, value.get("broadcast") or {}
        seq = int(value.get("seq") or 0)
        if value["event"] == "hello":
            self._connection_id = str(data.get("connection_id") or "")
            self._next_seq = seq + 1
            self._settled = True
            self._put(ChatSignal("fresh"))
            return
        self._number(seq)
        if value["event"] == "posted":
            signal = read_posted(data)
            if signal is not None:
                self._frames.keep(frame, signal)
                self._put(signal)
        elif value["event"] == "direct_added":
            channel_id, creator_id = str(broadcast.get("channel_id") or ""), str(data.get("creator_id") or "")
            self._put(ChatSignal("direct_added", channel_id=channel_id, creator_id=creator_id))

    def _number(self, seq: int) -> None:
        if seq > self._next_seq:
            self._put(ChatSignal("gap"))
        # A lower number is a repetition after a resume: harmless, for posts are told apart by their ids.
        self._next_seq = max(self._next_seq, seq + 1)

    def _put(self, signal: ChatSignal) -> None:
        if len(self._queue) >= QUEUE_LIMIT:
            log.warning("too many unread chat signals", extra={"dropped": len(self._queue)})
            self._queue.clear()
            signal = ChatSignal("gap")
        self._queue.append(signal)
        self._wake.set()


def read_posted(data: Mapping[str, Any]) -> ChatSignal | None:
    """Read the data of a `posted` event; None when it holds no post."""
    try:
        post = Post.of(json.loads(data["post"]))
    except (KeyError, ValueError, TypeError):
        log.warning("a posted event without a readable post")
        return None
    return ChatSignal(
        "posted",
        post=post,
        channel_id=post.channel_id,
        channel_type=str(data.get("channel_type") or ""),
        channel_name=str(data.get("channel_name") or ""),
    )
