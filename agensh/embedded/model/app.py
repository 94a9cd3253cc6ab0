"""The HTTP side: routes, reading, streaming, faults, and a record of every request for whoever wants it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agensh.embedded.model import NAME
from agensh.embedded.model.chat import ChatCompletions
from agensh.embedded.model.conversation import (
    Conversation,
    Fault,
    Figures,
    Json,
    Player,
    Refusal,
    Reply,
    count,
    figures_of,
)
from agensh.embedded.model.messages import Messages
from agensh.embedded.model.responses import Responses
from agensh.embedded.model.wire import Frame, Speech

MODELS = (NAME, "gpt-5.4", "claude-sonnet-5")
"""What the list of models says; every other name is answered all the same."""
WORKER_HEADER = "x-agensh-worker"
WRONG_KEY = Refusal(401, "Incorrect API key provided.", "invalid_api_key")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request, and what was answered."""

    path: str
    headers: dict[str, str]
    """All of them, credentials included."""
    body: Json
    conversation: Conversation | None = None
    """None: not one of the three wires, or not readable."""
    answer: Reply | Refusal | None = None
    figures: Figures | None = None
    """The usage that was reported."""

    @property
    def key(self) -> str:
        """The credential it came with."""
        return _credential(self.headers)


Recorder = Callable[[Recorded], None]


class ScriptedModel(Starlette):
    """The application. `close` ends the streams that stall or are slow, for a quick stop."""

    def __init__(self, player: Player, record: Recorder | None = None, key: str = "") -> None:
        """With a `key`, requests that come without it are refused as a provider refuses a wrong one (401)."""
        self._player = player
        self._record = record or (lambda _: None)
        self._key = key
        self._closing = asyncio.Event()
        super().__init__(
            lifespan=self._lifespan,
            routes=[
                Route("/healthz", _health),
                Route("/v1/models", self._models),
                Route("/v1/responses", self._endpoint(Responses()), methods=["POST"]),
                Route("/v1/chat/completions", self._endpoint(ChatCompletions()), methods=["POST"]),
                Route("/v1/messages", self._endpoint(Messages()), methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
                # Some CLIs look whether anybody is there before their first request.
                Route("/{path:path}", _probe, methods=["HEAD"]),
            ],
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._player.close()

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    def _endpoint(self, speech: Speech) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            return await self._answer(speech, request)

        return answer

    async def _answer(self, speech: Speech, request: Request) -> Response:
        raw = await request.body()
        body, asked = _read(speech, request, raw)
        recorded = Recorded(request.url.path, dict(request.headers), body, asked)
        if not self._admits(request):
            self._record(replace(recorded, answer=WRONG_KEY))
            return _refuse(speech, WRONG_KEY)
        if asked is None:
            refusal = Refusal(400, "The body is not a request of this API.")
            self._record(replace(recorded, answer=refusal))
            return _refuse(speech, refusal)
        answer = await self._play(asked, request)
        if answer is None:
            return Response(status_code=499)
        if isinstance(answer, Refusal):
            self._record(replace(recorded, answer=answer))
            return _refuse(speech, answer)
        figures = figures_of(asked, answer)
        self._record(replace(recorded, answer=answer, figures=figures))
        if asked.stream:
            return _Stream(speech.frames(asked, answer, figures), answer, self._closing)
        if answer.fault is None:
            await _sleep(self._closing, answer.slow)
            return JSONResponse(speech.whole(asked, answer, figures))
        return _Stream(iter([Frame(b"{", content=True)]), answer, self._closing, "application/json")

    async def _play(self, asked: Conversation, request: Request) -> Reply | Refusal | None:
        """Return the player's answer, None when the client or the server goes before it comes."""
        playing = asyncio.ensure_future(self._player.play(asked))
        gone = asyncio.ensure_future(_gone(request.receive))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([playing, gone, closing], return_when=asyncio.FIRST_COMPLETED)
            return playing.result() if playing.done() and not playing.cancelled() else None
        finally:
            for task in (playing, gone, closing):
                task.cancel()
            await asyncio.wait([playing, gone, closing])

    async def _count(self, request: Request) -> Response:
        raw = await request.body()
        self._record(Recorded(request.url.path, dict(request.headers), _json(raw)))
        if not self._admits(request):
            return _refuse(Messages(), WRONG_KEY)
        return JSONResponse({"input_tokens": count(len(raw.decode("utf-8", "replace")))})

    async def _models(self, request: Request) -> Response:
        if not self._admits(request):
            return _refuse(Responses(), WRONG_KEY)
        rows = [
            {"id": name, "object": "model", "type": "model", "display_name": name, "owned_by": "agensh", "created": 0}
            for name in MODELS
        ]
        return JSONResponse(
            {"object": "list", "data": rows, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]}
        )

    def _admits(self, request: Request) -> bool:
        given = _credential(dict(request.headers))
        return not self._key or hmac.compare_digest(given.encode(), self._key.encode())


class _Stream(Response):
    """Server-sent events, at the pace and with the fault that the reply asks for."""

    def __init__(
        self, frames: Iterator[Frame], reply: Reply, closing: asyncio.Event, media_type: str = "text/event-stream"
    ) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._frames = list(frames)
        self._reply = reply
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        talking = asyncio.ensure_future(self._talk(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait([talking, gone], return_when=asyncio.FIRST_COMPLETED)
            if talking.done() and talking.result():
                await send({"type": "http.response.body", "body": b""})
            # Left without an end the server closes the connection.
        finally:
            for task in (talking, gone):
                task.cancel()
            await asyncio.wait([talking, gone])

    async def _talk(self, send: Send) -> bool:
        """Send all frames; False when the stream is to end without an end."""
        content = sum(frame.content for frame in self._frames)
        for frame in self._frames:
            if self._closing.is_set():
                return False
            await send({"type": "http.response.body", "body": frame.data, "more_body": True})
            if not frame.content:
                continue
            if self._reply.fault is Fault.CUT:
                return False
            if self._reply.fault is Fault.STALL:
                await self._closing.wait()
                return False
            await _sleep(self._closing, self._reply.slow / content)
        return True


async def _sleep(closing: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), seconds)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _read(speech: Speech, request: Request, raw: bytes) -> tuple[Json, Conversation | None]:
    body = _json(raw)
    worker = request.headers.get(WORKER_HEADER, "")
    digest = hashlib.sha256(_credential(dict(request.headers)).encode()).hexdigest()[:16]
    try:
        asked = speech.read(body)
    except (KeyError, TypeError, AttributeError):
        return body, None
    return body, replace(asked, size=len(raw.decode("utf-8", "replace")), worker=worker, caller=worker or digest)


def _json(raw: bytes) -> Json:
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _credential(headers: dict[str, str]) -> str:
    named = headers.get("x-api-key") or headers.get("api-key")
    return named or headers.get("authorization", "").removeprefix("Bearer ")


def _refuse(speech: Speech, refusal: Refusal) -> Response:
    headers = {} if refusal.retry_after is None else {"retry-after": str(math.ceil(refusal.retry_after))}
    return JSONResponse(speech.error(refusal), refusal.status, headers)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _probe(_: Request) -> Response:
    return Response()
