"""Typed client of the board service.

A write carries a key, its caller's or a fresh one, so that it is repeated safely after a cut connection: one row.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import httpx

from agensh.clients.http import lines_of, new_http_client, read_json, retry_after, send
from agensh.entries import Entry, EntryType
from agensh.errors import AgenshError, ServiceError

SERVICE = "board"
STREAM_SILENCE = 45.0  # seconds; the service sends a heartbeat every 15
REASON_CAP = 500  # code points of a worker's reason
REJECTED = frozenset({413, 422})


class EntryRejected(AgenshError):
    """The board refused the note; nothing was written."""

    def __init__(self, message: str, errors: list[dict[str, str]]) -> None:
        super().__init__(message)
        self.errors = errors
        """Each has `code` and `message`."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """An active claim of somebody else that looks like the one just written."""

    label: str
    worker: str
    content: str
    score: float
    """0 to 100."""


@dataclass(frozen=True, slots=True)
class Written:
    """An admitted note."""

    seq: int
    label: str
    overlaps: tuple[Overlap, ...] = ()
    repeated: bool = False
    """The key was known: this is the first entry."""


@dataclass(frozen=True, slots=True)
class GrepPage:
    """Entries, newest first."""

    entries: tuple[Entry, ...]
    more: bool
    next_before: int | None


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The board answered: what happens from now on will be heard."""


@dataclass(frozen=True, slots=True)
class Released:
    """A claim was released: it is no claim any more."""

    seq: int


@dataclass(frozen=True, slots=True)
class PendingNotice:
    """One line of what an agent has not seen."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a worker does, as its node host sees it."""

    worker: str
    state: str
    reason: str = ""
    """Why it is parked."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent has not acknowledged; acknowledging `cursor` covers it all."""

    notices: tuple[PendingNotice, ...]
    cursor: int


class BoardClient:
    """One board as the owner of a token sees it. ServiceError when the service refuses or does not answer."""

    def __init__(self, url: str, token: str, board: str, http: httpx.AsyncClient | None = None) -> None:
        self.url = url.rstrip("/")
        self.board = board
        self._headers = {"Authorization": f"Bearer {token}"}
        self._own = http is None
        self._http = new_http_client(self.url) if http is None else http

    async def __aenter__(self) -> BoardClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's."""
        if self._own:
            await self._http.aclose()

    async def write(self, type: EntryType | str, content: str, detail: str = "", *, key: str | None = None) -> Written:
        """Write a note; EntryRejected when the rules refuse it. The same `key` answers with the first entry."""
        body = {"type": str(type), "content": content, "detail": detail}
        response = await self._send(
            "POST",
            f"{self._path}/note",
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Idempotency-Key": key or f"c-{uuid.uuid4().hex}"},
            idempotent=True,
            expect={200, *REJECTED},
        )
        value = read_json(response, SERVICE)
        if response.status_code in REJECTED:
            raise EntryRejected(str(value["reason"]), list(value["errors"]))
        overlaps = tuple(
            Overlap(item["label"], item["worker"], item["content"], float(item["score"])) for item in value["overlaps"]
        )
        return Written(int(value["gist_id"]), str(value["label"]), overlaps, bool(value["repeated"]))

    async def read(self, *, limit: int = 2000, after: int | None = None, type: EntryType | None = None) -> list[Entry]:
        """Return entries, ascending: the newest `limit`, or the first `limit` after `after`."""
        value = await self._get(self._path, limit=limit, after=after, type=None if type is None else str(type))
        return [Entry.from_json(item) for item in value["entries"]]

    async def grep(self, q: str, *, before: int | None = None, limit: int = 100) -> GrepPage:
        """Search all history, newest first: `,` is OR, `&` is AND."""
        value = await self._get(f"{self._path}/grep", q=q, before=before, limit=limit)
        entries = tuple(Entry.from_json(item) for item in value["entries"])
        return GrepPage(entries, bool(value["more"]), value["next_before"])

    async def unfold(self, label: str) -> tuple[Entry, str]:
        """Return an entry and its detail."""
        value = await self._get(f"{self._path}/note/{quote(label, safe='')}")
        return Entry.from_json(value), str(value["detail"])

    async def release(self, label: str) -> Entry:
        """Release one's own claim."""
        path = f"{self._path}/note/{quote(label, safe='')}/release"
        value = read_json(await self._send("POST", path, idempotent=True), SERVICE)
        return Entry.from_json(value["entry"])

    async def pending(self, agent: str, *, ack: int | None = None) -> Pending:
        """Return what `agent` has not acknowledged, after acknowledging up to `ack`."""
        value = await self._get(f"/pending/{quote(agent, safe='')}", ack=ack, board=self.board)
        notices = tuple(PendingNotice(str(item["id"]), str(item["text"])) for item in value["notices"])
        return Pending(notices, int(value["cursor"]))

    async def tell_workers(self, states: Sequence[WorkerState]) -> None:
        """Tell what workers do (admins); what is said of others stays."""
        rows = [asdict(state) | {"reason": state.reason[:REASON_CAP]} for state in states]
        await self._send("PUT", f"{self._path}/workers", json={"workers": rows}, idempotent=True)

    async def workers(self) -> list[WorkerState]:
        """Return what the workers of the board do, as their node hosts told it last."""
        value = await self._get(f"{self._path}/workers")
        return [WorkerState(str(row["worker"]), str(row["state"]), str(row["reason"])) for row in value["workers"]]

    async def head(self) -> int:
        """Return the seq of the newest entry, 0 on an empty board."""
        return int((await self._get(self._path, limit=1))["head"])

    async def stream(self, after: int) -> AsyncGenerator[Entry, None]:
        """Yield every entry after `after`, then new ones as they are committed, over one connection.

        Ends with ServiceError when the connection is cut or silent; call again with the last seq, nothing is skipped.
        Close it (`aclose`) when you leave it before its end.
        """
        async with aclosing(self.follow(after)) as happenings:
            async for happening in happenings:
                if isinstance(happening, Entry):
                    yield happening

    async def follow(self, after: int) -> AsyncGenerator[Entry | Released | StreamOpened, None]:
        """Do as `stream`, and yield as well when the board answers and when a claim is released.

        What was released before the board answered is not told: entries that come later show it, for others read the
        listing.
        """
        timeout = httpx.Timeout(10.0, read=STREAM_SILENCE)
        url = f"{self.url}{self._path}/stream"
        try:
            async with self._http.stream(
                "GET", url, params={"after": after}, headers=self._headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    status = response.status_code
                    again = status == 429 or status >= 500
                    wait = retry_after(response.headers)
                    raise ServiceError(SERVICE, status, _reason(response), retryable=again, retry_after=wait)
                yield StreamOpened()
                event = ""
                async with aclosing(lines_of(response, silence=STREAM_SILENCE)) as lines:
                    async for line in lines:
                        field, _, value = line.partition(":")
                        if field == "event":
                            event = value.strip()
                        elif field == "data" and event == "release":
                            yield Released(int(json.loads(value)["seq"]))
                        elif field == "data" and event == "entry":
                            yield Entry.from_json(json.loads(value))
        except (httpx.ReadTimeout, TimeoutError) as error:
            reason = f"the stream is silent: nothing came for {STREAM_SILENCE:g} s"
            raise ServiceError(SERVICE, 0, reason, retryable=True) from error
        except httpx.RequestError as error:
            raise ServiceError(SERVICE, 0, f"the stream broke ({type(error).__name__})", retryable=True) from error
        raise ServiceError(SERVICE, 0, "the stream was cut", retryable=True)

    async def whoami(self) -> str:
        """Return whose token this is."""
        return str((await self._get("/tokens/self"))["worker"])

    async def create_token(self, worker: str, *, role: str = "worker") -> str:
        """Make a token for this board (admins)."""
        body = {"worker": worker, "board": self.board, "role": role}
        response = await self._send("POST", "/tokens", json=body, idempotent=False, expect={201})
        return str(read_json(response, SERVICE)["token"])

    async def revoke_token(self, worker: str) -> None:
        """Revoke the worker's tokens for this board (admins)."""
        await self._send(
            "DELETE",
            f"/tokens/{quote(worker, safe='')}",
            params={"board": self.board},
            idempotent=True,
            expect={200, 404},
        )

    @property
    def _path(self) -> str:
        return f"/board/{quote(self.board, safe='')}"

    async def _get(self, path: str, **params: object) -> Any:
        given = {name: str(value) for name, value in params.items() if value is not None}
        return read_json(await self._send("GET", path, params=given, idempotent=True), SERVICE)

    async def _send(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **arguments: Any
    ) -> httpx.Response:
        return await send(
            self._http,
            method,
            f"{self.url}{path}",
            service=SERVICE,
            describe=_reason,
            headers=self._headers | (headers or {}),
            **arguments,
        )


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
