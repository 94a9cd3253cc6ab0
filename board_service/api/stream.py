"""The entry stream: server-sent events whose id is the entry's seq."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from agensh.entries import Entry
from board_service.api.board import SEQ_MAX
from board_service.api.deps import BoardName, Caller, Service, access, errors
from board_service.errors import refuse
from board_service.service import BoardService, OpenBoard, shown_entry

router = APIRouter(tags=["stream"])

PAGE = 500  # entries sent in one piece


class EventStream(StreamingResponse):
    """A stream that is cut when its reader takes no bytes for `send_seconds`."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], service: BoardService) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events = events
        self._service = service

    async def stream_response(self, send: Send) -> None:
        async def bounded(message: Message) -> None:
            async with asyncio.timeout(self._service.settings.send_seconds):
                await send(message)

        try:
            await super().stream_response(bounded)
        except TimeoutError:
            # Returning without the end of the body makes the server close the connection.
            self._service.metrics.streams_cut += 1
        finally:
            await self._events.aclose()


@router.get(
    "/board/{board}/stream",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "`event: entry`, `id:` its seq"},
        **errors(422),
    },
    openapi_extra=access("read"),
)
async def stream(
    request: Request,
    board: BoardName,
    service: Service,
    caller: Caller,
    after: Annotated[int, Query(ge=0, le=SEQ_MAX, description="Send what was written after this seq.")] = 0,
    last_event_id: Annotated[str | None, Header(description="Goes before `after`.")] = None,
) -> StreamingResponse:
    """Send every entry after `after`, then every new one when it is committed; a comment line every 15 s."""
    caller.may_read(board)
    if last_event_id:
        if not last_event_id.isascii() or not last_event_id.isdigit() or int(last_event_id[:17]) > SEQ_MAX:
            raise refuse(422, "last_event_id", f"Last-Event-ID: {last_event_id[:40]!a} is no seq of this stream.")
        after = int(last_event_id)
    token: str = request.state.token
    return EventStream(_events(service, await service.board(board), after, token), service)


async def _events(service: BoardService, board: OpenBoard, after: int, token: str) -> AsyncGenerator[str, None]:
    feed, settings = board.feed, service.settings
    live = False
    generation = service.tokens.generation
    feed.subscribers += 1
    try:
        yield "retry: 1000\n\n"
        while not feed.closed:
            if generation != service.tokens.generation:
                generation = service.tokens.generation
                if await service.tokens.find(token) is None:
                    return
            if feed.head <= after:
                live = True
                if not await feed.wait(after, settings.heartbeat_seconds):
                    yield ": heartbeat\n\n"
                continue
            if live and feed.head - after > settings.stream_lag:
                service.metrics.streams_cut += 1
                return
            entries = feed.after(after, PAGE)
            if entries is None:
                entries = await service.store.after(board.name, after, PAGE)
            now = service.clock.time()
            yield "".join(_event(entry, now) for entry in entries)
            after = entries[-1].seq
    finally:
        feed.subscribers -= 1


def _event(entry: Entry, now: float) -> str:
    # ASCII only: some readers end a line at any Unicode line separator.
    return f"id: {entry.seq}\nevent: entry\ndata: {json.dumps(shown_entry(entry, now), separators=(',', ':'))}\n\n"
