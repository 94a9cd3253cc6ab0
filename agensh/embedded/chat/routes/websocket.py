"""`/websocket`: upgrade, authentication, resume, and the few actions a client may send."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

from starlette.websockets import WebSocket, WebSocketDisconnect

from agensh.embedded.chat.auth import find_session, valid_token
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.connection import Connection, Event
from agensh.embedded.chat.model import Token
from agensh.embedded.chat.settings import SERVER_VERSION
from agensh.embedded.chat.shapes import dumps

AUTHENTICATION = 5.0
"""Seconds an unauthenticated connection may stay."""
MESSAGE_LIMIT = 8192
"""Largest message of a client, in bytes."""
FOR_EVER = 10 * 365 * 86_400.0


async def websocket(socket: WebSocket) -> None:
    """Serve one connection until either side ends it."""
    chat: Chat = socket.app.state.chat
    if not _origin_is_fine(socket, chat.settings.site_url):
        await socket.close()  # before the upgrade: answered with 403
        return
    await socket.accept()
    session = find_session(chat.directory, socket, chat.now())
    peer = Peer(chat, socket)
    try:
        peer.open(session)
    except ValueError:
        return  # closed without a reason
    await peer.run()


def _origin_is_fine(socket: WebSocket, site_url: str) -> bool:
    origin = socket.headers.get("origin")
    if origin is None:
        return True
    host = urlsplit(origin).netloc
    allowed = urlsplit(site_url).netloc if site_url else socket.headers.get("host", "")
    return bool(host) and host == allowed


class Peer:
    """One socket and the connection it carries."""

    def __init__(self, chat: Chat, socket: WebSocket) -> None:
        self.chat = chat
        self.socket = socket
        self.connection = Connection()
        self._close_code = 0
        """How to close the socket in the end; 0 leaves the peer without a reason."""

    def open(self, session: Token | None) -> None:
        """Register the connection, or the one it resumes; ValueError for a sequence number that is none."""
        if session is None:
            return
        connection_id = self.socket.query_params.get("connection_id", "")
        if not connection_id:
            self._begin(session)
            return
        expected = int(self.socket.query_params.get("sequence_number", ""))
        dead = self.chat.hub.take_dead(session.user_id, connection_id)
        if dead is None:
            self._begin(session)
            return
        repeat = dead.resume(expected)
        if repeat is not None:
            self.connection = dead.successor(same_id=True)
            self.connection.token_hash = session.hash
            self.connection.first.extend(repeat)
        else:
            self.connection = dead.successor(same_id=False)
            self.connection.token_hash = session.hash
            self.connection.first.append(self._hello())
        self.chat.hub.add(self.connection)

    def _begin(self, session: Token) -> None:
        """Start a new connection with its hello."""
        self.connection.user_id, self.connection.token_hash = session.user_id, session.hash
        self.chat.hub.add(self.connection)
        self.chat.hub.offer(self.connection, self._hello())

    def _hello(self) -> Event:
        data: dict[str, object] = {
            "connection_id": self.connection.id,
            "server_hostname": "localhost",
            "server_version": f"{SERVER_VERSION}.{SERVER_VERSION}.agensh.false",
        }
        broadcast: dict[str, object] = {
            "omit_users": None,
            "user_id": self.connection.user_id,
            "channel_id": "",
            "team_id": "",
            "connection_id": self.connection.id,
            "omit_connection_id": "",
        }
        return Event.of("hello", data, broadcast)

    async def run(self) -> None:
        """Read, write and watch the clock until one of them ends, or until the connection is cut."""
        tasks = [
            asyncio.create_task(self._read(), name="chat-ws-read"),
            asyncio.create_task(self._write(), name="chat-ws-write"),
            asyncio.create_task(self._expire(), name="chat-ws-auth"),
            asyncio.create_task(self._await_cut(), name="chat-ws-cut"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.connection.active = False
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            if not self.connection.user_id:
                self.chat.hub.remove(self.connection)
        for result in results:
            if isinstance(result, Exception):
                raise result
        await self._close()

    async def _close(self) -> None:
        if not self._close_code and not self.connection.cut:
            return
        # A cut peer may be too slow even for the close frame (an empty one, as the real server's): do not wait for it.
        try:
            async with asyncio.timeout(1):
                await self.socket.send({"type": "websocket.close", "code": self._close_code or None})
        except (TimeoutError, WebSocketDisconnect):
            return

    async def _await_cut(self) -> None:
        await self.connection.gone.wait()

    async def _write(self) -> None:
        try:
            await self.connection.write(self.socket.send_text)
        except WebSocketDisconnect:
            return

    async def _expire(self) -> None:
        await self.chat.clock.sleep(AUTHENTICATION)
        while self.connection.user_id:
            await self.chat.clock.sleep(FOR_EVER)

    async def _read(self) -> None:
        """Answer messages; returns when the peer is gone or has to go."""
        while True:
            message = await self.socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("text")
            raw: bytes = data.encode() if data is not None else message.get("bytes") or b""
            if len(raw) > MESSAGE_LIMIT:
                self._close_code = 1009
                return
            try:
                request = json.loads(raw)
            except ValueError:
                return
            if not isinstance(request, dict) or not self._answer(request):
                return

    def _answer(self, request: dict[str, Any]) -> bool:
        """Act on a request; False ends the connection."""
        action, seq = request.get("action"), request.get("seq")
        data = request.get("data")
        if action == "authentication_challenge":
            return self._authenticate(seq, data if isinstance(data, dict) else {})
        if not isinstance(action, str) or not action:
            return self._fail(seq, "api.web_socket_router.no_action.app_error", "No websocket action.", 400)
        if not isinstance(seq, int) or seq <= 0:
            return self._fail(
                seq, "api.web_socket_router.bad_seq.app_error", "Invalid sequence for WebSocket message.", 400
            )
        if not self.connection.user_id or not self.chat.hub.session_is_valid(self.connection):
            return self._fail(
                seq,
                "api.web_socket_router.not_authenticated.app_error",
                "WebSocket connection is not authenticated. Please log in and try again.",
                401,
            )
        self.chat.hub.touch(self.connection.user_id)
        return self._perform(action, seq, data if isinstance(data, dict) else {})

    def _perform(self, action: str, seq: int, data: dict[str, Any]) -> bool:
        if action == "ping":
            pong = {"text": "pong", "version": SERVER_VERSION, "server_time": self.chat.now(), "node_id": ""}
            return self._reply({"status": "OK", "seq_reply": seq, "data": pong})
        if action in {"user_typing", "user_update_active_status", "presence", "posted_notify_ack"}:
            return self._reply({"status": "OK", "seq_reply": seq})
        if action in {"get_statuses", "get_statuses_by_ids"}:
            wanted = data.get("user_ids") if action == "get_statuses_by_ids" else list(self.chat.directory.users)
            ids = [user_id for user_id in wanted if isinstance(user_id, str)] if isinstance(wanted, list) else []
            statuses = {user_id: "online" for user_id in ids if self.chat.hub.is_online(user_id)}
            return self._reply({"status": "OK", "seq_reply": seq, "data": statuses})
        return self._fail(seq, "api.web_socket_router.bad_action.app_error", "Unknown WebSocket action.", 500)

    def _authenticate(self, seq: Any, data: dict[str, Any]) -> bool:
        """Take the challenge: hello, then OK; a wrong token ends the connection, a second challenge has no answer."""
        if self.connection.user_id:
            return True
        secret = data.get("token")
        session = valid_token(self.chat.directory, secret if isinstance(secret, str) else "", self.chat.now())
        if session is None:
            return False
        self._begin(session)
        return self._reply({"status": "OK", "seq_reply": seq})

    def _reply(self, reply: dict[str, Any]) -> bool:
        self.chat.hub.offer(self.connection, dumps(reply))
        return True

    def _fail(self, seq: Any, error_id: str, message: str, status: int) -> bool:
        error = {
            "id": error_id,
            "message": message,
            "detailed_error": "",
            "status_code": status,
        }
        return self._reply({"status": "FAIL", "seq_reply": seq if isinstance(seq, int) else 0, "error": error})
