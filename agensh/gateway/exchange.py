"""One request of a worker to the provider, from its body to its settled row."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace

import aiohttp
from starlette.types import Send

from agensh.clock import Clock
from agensh.db import DatabaseUnavailable
from agensh.gateway.accounts import Accounts
from agensh.gateway.gate import Gate
from agensh.gateway.ledger import Begun, Ledger, Settled
from agensh.gateway.models import only_allowed
from agensh.gateway.prices import Prices
from agensh.gateway.tables import MODEL_CAP
from agensh.gateway.upstream import Upstream, answer_headers, asked_pause
from agensh.gateway.usage import MOST_EVENT, Meter, Tokens, read_body
from agensh.gateway.wires import Refusal, RequestHead, Wire, ask_for_usage, read_head
from agensh.spec import GatewaySection

MOST_ERROR = 2**20  # bytes of an error's body that are passed on
OVERLOADED = {429, 503, 529}
QUOTA = b"insufficient_quota"  # a 429 of OpenAI that no pause mends
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker sent."""

    worker: str
    wire: Wire
    method: str
    path: str
    """Below the provider's root."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    metered: bool = True
    """Tokens are used by it (not by a count of tokens, not by a model list)."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the exchanges of a gateway have in common."""

    section: GatewaySection
    upstream: Upstream
    ledger: Ledger
    accounts: Accounts
    gate: Gate
    prices: Prices
    clock: Clock


class Cut(Exception):
    """The answer cannot be completed after it began: the connection to the worker has to end."""


class Exchange:
    """Sends one request on and its answer back."""

    def __init__(self, desk: Desk, ask: Ask, send: Send) -> None:
        self._desk = desk
        self._ask = ask
        self._send = send
        self._head = RequestHead()
        self._begun = Begun(uuid.uuid4().hex, ask.worker, str(ask.wire), "", desk.clock.time())
        self._status = 0
        self._settled = not ask.metered
        self._sent = False
        """To the provider."""
        self._started = False
        """The answer to the worker has begun."""
        self._told: Tokens | None = None
        self._all_told = False
        self._note: asyncio.Future[None] | None = None
        self._meter = Meter(ask.wire)
        self.leaving = "the client left"
        """Why it is cancelled, when it is."""

    async def run(self) -> None:
        """Answer the worker; Cut when its connection has to end instead."""
        try:
            self._look()
            async with self._desk.gate.place():
                self._allow()  # again: the budget may have been spent while it waited
                await self._send_on()
        except Refusal as refusal:
            self._status = refusal.status
            with suppress(DatabaseUnavailable):  # the row is kept, and the answer is the same
                await self._settle("failed" if self._sent else "refused", refusal.reason)
            await self._refuse(refusal)
        except DatabaseUnavailable as error:
            if self._sent and not self._settled:
                self._settled = True
                self._desk.ledger.note(self._begun, self._ended("unmetered", "the database was away"))
            if self._started:
                raise Cut from error
            await self._refuse(Refusal(503, "agensh_no_ledger", f"{error} Try again in a moment.", retry_after=5))
        except asyncio.CancelledError:
            if self._sent:
                await self._settle("unmetered", self.leaving)
            raise

    def _look(self) -> None:
        if self._ask.method != "POST":
            return
        self._head = read_head(self._ask.body)
        self._begun = replace(self._begun, model=self._head.model[:MODEL_CAP])
        self._allow()

    def _allow(self) -> None:
        """Refusal when the worker may not ask this."""
        section, head = self._desk.section, self._head
        if self._ask.wire is Wire.OTHER:
            return
        for what, asked, allowed in (
            ("model", head.model, section.models),
            # A request that names no effort leaves it to the provider.
            ("effort", head.effort, section.efforts if head.effort else ()),
        ):
            if allowed and asked not in allowed:
                wrong = f"{asked[:MODEL_CAP]!r} is not allowed in this run" if asked else "missing"
                raise Refusal(403, f"agensh_{what}_not_allowed", f"{what}: {wrong}; it is one of {', '.join(allowed)}.")
        if head.background:
            raise Refusal(400, "agensh_no_background", "background: true is not allowed: such an answer has no meter.")
        if self._ask.metered:
            self._desk.accounts.check(self._ask.worker)
            if self._desk.ledger.away:
                # The provider would be paid for an answer that cannot be recorded.
                raise DatabaseUnavailable("The gateway's database does not take writes.")

    async def _send_on(self) -> None:
        ask, body, added = self._ask, self._ask.body, False
        if ask.wire is Wire.CHAT and self._head.stream:
            body, added = ask_for_usage(body, self._head)
        self._meter = Meter(ask.wire, hide_usage=added)
        self._sent = True
        if ask.metered:
            self._desk.ledger.begin(self._begun)
        try:
            async with self._desk.upstream.request(
                ask.method, ask.path, ask.query, ask.headers, body, ask.worker
            ) as answer:
                await self._pass_on(answer)
        except TimeoutError as error:
            await self._broken(504, "agensh_provider_silent", "The provider sent nothing in time.", error)
        except aiohttp.ClientConnectorError as error:
            await self._broken(502, "agensh_provider_unreachable", "The provider cannot be reached.", error)
        except aiohttp.ClientError as error:
            message = "The provider closed the connection before its answer was whole."
            await self._broken(502, "agensh_provider_unreachable", message, error)

    async def _broken(self, status: int, code: str, message: str, error: Exception) -> None:
        """The provider failed: before its answer that is an answer of ours, later the answer is cut."""
        log.warning("provider failed", extra={"worker": self._ask.worker, "error": f"{type(error).__name__}: {error}"})
        if not self._started:
            raise Refusal(status, code, message) from error
        await self._settle("unmetered", "the provider cut the answer")
        raise Cut from error

    async def _pass_on(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status >= 400:
            await self._pass_error(answer)
            return
        self._desk.gate.went_well()
        if answer.content_type == "text/event-stream" and self._ask.metered:
            await self._pass_stream(answer)
        else:
            await self._pass_body(answer)

    async def _pass_error(self, answer: aiohttp.ClientResponse) -> None:
        parts: list[bytes] = []
        async for chunk in answer.content.iter_any():
            parts.append(chunk)
            if sum(map(len, parts)) > MOST_ERROR:
                break
        body = self._desk.upstream.without_credential(b"".join(parts)[:MOST_ERROR])
        if answer.status in OVERLOADED and QUOTA not in body:
            self._desk.gate.slow_down(asked_pause(answer, self._desk.clock))
        self._status = answer.status
        await self._settle("failed", f"the provider answered {answer.status}")
        await self._start(answer.status, [*answer_headers(answer), (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def _pass_stream(self, answer: aiohttp.ClientResponse) -> None:
        meter, send = self._meter, self._send
        await self._start(answer.status, answer_headers(answer))
        read = answer.content.readany
        try:
            while chunk := await read():
                kept = meter.feed(chunk)
                if meter.final and not self._settled:
                    await self._settle_metered()
                elif meter.tokens is not self._told and not self._settled:
                    self._tell()
                if kept:
                    await send({"type": "http.response.body", "body": kept, "more_body": True})
        except aiohttp.ClientError:
            # What had come and waited for a slow worker is not handed out after a break; it may tell what was used.
            meter.feed(b"".join(answer.content._buffer))
            raise
        await self._settle_metered()
        await send({"type": "http.response.body", "body": meter.rest(), "more_body": False})

    async def _pass_body(self, answer: aiohttp.ClientResponse) -> None:
        parts: list[bytes] = []
        size = 0
        async for chunk in answer.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > MOST_EVENT:
                raise Refusal(502, "agensh_answer_too_large", "The provider's answer is too large.")
        body = b"".join(parts)
        if self._ask.wire is Wire.OTHER:
            body = only_allowed(body, self._desk.section.models)
        elif self._ask.metered:
            self._meter.tokens, self._meter.model = read_body(self._ask.wire, body)
            self._meter.complete = self._meter.tokens is not None
            self._status = answer.status
            await self._settle_metered()
        await self._start(answer.status, [*answer_headers(answer), (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status, self._started = status, True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _refuse(self, refusal: Refusal) -> None:
        body = refusal.body(self._ask.wire)
        await self._start(refusal.status, [*refusal.headers(), (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    def _tell(self) -> None:
        """Keep what a stream reported so far: should the gateway be killed now, that was paid.

        Some providers report in every event; then it is told again when the last word of it is written.
        """
        meter = self._meter
        if self._note is not None and not self._note.done() and self._all_told == meter.complete:
            return
        self._told, self._all_told = meter.tokens, meter.complete
        tokens = meter.tokens or Tokens()
        cost = self._desk.prices.cost(tokens, self._begun.model, meter.model)
        self._note = self._desk.ledger.note(self._begun, Settled("open", None, self._status, "", tokens, cost))

    async def _settle_metered(self) -> None:
        if self._meter.complete:
            await self._settle("metered", "")
        else:
            await self._settle("unmetered", "the provider reported no usage")

    async def _settle(self, state: str, reason: str) -> None:
        """Commit how the request ended, once."""
        if self._settled:
            return
        self._settled = True
        await self._desk.ledger.settle(self._begun, self._ended(state, reason))

    def _ended(self, state: str, reason: str) -> Settled:
        """Count and log how the request ended."""
        desk, meter, begun = self._desk, self._meter, self._begun
        tokens = meter.tokens or Tokens()
        cost = desk.prices.cost(tokens, begun.model, meter.model) if meter.tokens is not None else None
        if state != "refused":
            desk.accounts.add(begun.worker, tokens, cost)
        now = desk.clock.time()
        log.info(
            "request ended",
            extra={
                "worker": begun.worker,
                "wire": begun.wire,
                "model": begun.model,
                "state": state,
                "reason": reason,
                "status": self._status,
                "seconds": round(now - begun.started_at, 3),
                "input": tokens.input,
                "output": tokens.output,
            },
        )
        return Settled(state, now, self._status, reason, tokens, cost)
