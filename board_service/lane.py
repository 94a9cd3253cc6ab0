"""The two calls that a team makes all the time, answered without FastAPI's resolution of parameters.

`POST /board/{board}/note` goes to the same function as its route, which stays the description of it. `GET
/pending/{agent}` is answered here only in the plain case: the agent itself asks, and there is nothing new. Everything
else is left to the routes. A call that is answered here has passed the gate like any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from board_service.api.notes import admit
from board_service.auth import Principal, Role
from board_service.board import check_board_name
from board_service.service import BoardService

_NOTE = re.compile(r"/board/([^/]+)/note")
_PENDING = "/pending/"
_ACK = re.compile(rb"(?:ack=[0-9]{1,15})?")


async def answered(scope: Scope, receive: Receive, send: Send, service: BoardService, caller: Principal) -> bool:
    """Answer the request if it is one of the two; False when nothing was done. Refusal and errors like the routes'."""
    path, method = scope["path"], scope["method"]
    if method == "GET" and path.startswith(_PENDING):
        body = _nothing_new(path[len(_PENDING) :], scope["query_string"], service, caller)
    elif method == "POST" and (match := _NOTE.fullmatch(path)) is not None:
        board = check_board_name(match[1])
        caller.may_write(board)
        key = _header(scope["headers"], b"idempotency-key")
        value = await admit(service, caller, board, key, await _body(receive))
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    else:
        return False
    if body is None:
        return False
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return True


def _nothing_new(agent: str, query: bytes, service: BoardService, caller: Principal) -> bytes | None:
    # With all of it acknowledged no `ack` can move the cursor any further, so that its value does not matter.
    if caller.role is Role.ADMIN or caller.name != agent or _ACK.fullmatch(query) is None:
        return None
    cursor = service.nothing_pending(caller.board, agent)
    return None if cursor is None else b'{"agent":"%b","notices":[],"cursor":%d}' % (agent.encode(), cursor)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
