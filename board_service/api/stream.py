"""The entry stream: server-sent events whose id is the entry's seq, and events without an id for released claims."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from agensh.entries import Entry
from board_service.api.board import SEQ_MAX
from board_service.api.deps import BoardName, Caller, Service, access, errors
from board_service.board import is_shown
from board_service.errors import refuse
from board_service.service import BoardService, OpenBoard

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
        200: {
            "content": {"text/event-stream": {}},
            "description": "`event: entry`, `id:` its seq; `event: release`, no id: an earlier CLAIM was released",
        },
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
    """Send every entry after `after`, then every new one when it is committed; a comment line every 15 s.

    When a CLAIM that was sent is released, it is sent once more as it is now, as an event `release` without an id.
    """
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
    released = feed.released
    generation = service.tokens.generation
    feed.subscribers += 1
    try:
        yield "retry: 1000\n\n"
        while not feed.closed:
            if generation != service.tokens.generation:
                generation = service.tokens.generation
                if await service.tokens.find(token) is None:
                    return
            if feed.released != released:
                gone = feed.releases_after(released)
                if gone is None:
                    service.metrics.streams_cut += 1
                    return
                released = feed.released
                # What comes later says itself that it was released.
                if text := "".join(_release(entry) for entry in gone if entry.seq <= after):
                    yield text
                continue
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
    shown = is_shown(entry, now)
    return _text(entry if entry.active == shown else replace(entry, active=shown))


@lru_cache(maxsize=2048)  # every subscriber gets the same text of a new entry
def _text(entry: Entry) -> str:
    # ASCII only: some readers end a line at any Unicode line separator.
    return f"id: {entry.seq}\nevent: entry\ndata: {json.dumps(entry.to_json(), separators=(',', ':'))}\n\n"


@lru_cache(maxsize=64)
def _release(claim: Entry) -> str:
    # No id: a reader resumes from the last entry that it has.
    return f"event: release\ndata: {json.dumps(claim.to_json(), separators=(',', ':'))}\n\n"
