"""The gateway's routes: the providers' APIs for workers, and what administers the gateway."""

from __future__ import annotations

import asyncio
import hmac
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from agensh.clock import Clock
from agensh.db import DatabaseUnavailable
from agensh.errors import UsageError
from agensh.gateway.accounts import Accounts
from agensh.gateway.exchange import Ask, Cut, Desk, Exchange
from agensh.gateway.gate import Gate
from agensh.gateway.ledger import Ledger
from agensh.gateway.prices import load_prices
from agensh.gateway.probe import ask_provider
from agensh.gateway.upstream import Upstream
from agensh.gateway.wires import Refusal, Wire
from agensh.identity import parse_worker_name, token_hash
from agensh.spec import GatewaySection

BODY_SECONDS = 60.0  # seconds a request's body may take to arrive
LEAVE_SECONDS = 2.0  # of the server's grace that requests under way get at a stop
WORKER_ROUTES: dict[tuple[str, str], tuple[Wire, bool]] = {
    ("POST", "/responses"): (Wire.RESPONSES, True),
    ("POST", "/chat/completions"): (Wire.CHAT, True),
    ("POST", "/messages"): (Wire.MESSAGES, True),
    ("POST", "/messages/count_tokens"): (Wire.MESSAGES, False),
    ("GET", "/models"): (Wire.OTHER, False),
}
"""Method and path below `/v1` -> the wire, and whether tokens are used."""
_RELAYED = {(method, f"/v1{path}") for method, path in WORKER_ROUTES}


class Gateway:
    """The parts of a gateway; `running` opens and closes them."""

    def __init__(self, section: GatewaySection, credential: str, admin: str, database: str, clock: Clock) -> None:
        self.section = section
        self.prices = load_prices(section.prices)
        self.ledger = Ledger(database, clock)
        self.accounts = Accounts(section.budget_usd, section.worker_budget_usd)
        self.keys: dict[str, str] = {}
        """Worker by the hash of its key."""
        self._changing_keys = asyncio.Lock()
        self._credential = credential
        self._admin = admin
        self._clock = clock
        self._desk: Desk | None = None
        self._under_way: dict[asyncio.Task[None], Exchange] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the database and the connections; at the end write what is left."""
        section = self.section
        await self.ledger.open()
        self.keys = await self.ledger.keys()
        self.accounts = Accounts(section.budget_usd, section.worker_budget_usd, await self.ledger.totals())
        upstream = Upstream(section, self._credential)
        gate = Gate(section.concurrency, section.queue, section.queue_wait)
        self._desk = Desk(section, upstream, self.ledger, self.accounts, gate, self.prices, self._clock)
        writing = asyncio.create_task(self.ledger.run())
        try:
            yield
        finally:
            gate.close()
            # Here at the latest: the record takes nothing more once it closes.
            self._leave()
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=LEAVE_SECONDS)
            await upstream.aclose()
            self.ledger.close()
            await writing
            await self.ledger.dispose()

    def stop(self) -> None:
        """Requests under way get a moment more, then they end as `unmetered`."""
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._leave)

    def _leave(self) -> None:
        for task, exchange in self._under_way.items():
            exchange.leaving = "the gateway stopped"
            task.cancel()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place toward the provider."""
        return self._desk.gate.waiting if self._desk is not None else 0

    def worker_of(self, scope: Scope) -> str | None:
        """Return whose key a request carries."""
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                found = (
                    self.keys.get(token_hash(token.strip().decode("latin-1"))) if scheme.lower() == b"bearer" else None
                )
            elif name == b"x-api-key":
                found = self.keys.get(token_hash(value.strip().decode("latin-1")))
            else:
                continue
            if found is not None:
                return found
        return None

    async def new_key(self, worker: str) -> str:
        """Make a key for a worker; its former one is refused from now on."""
        async with self._changing_keys:
            key = await self.ledger.new_key(worker)
            self._forget_keys(worker)
            self.keys[token_hash(key)] = worker
        return key

    async def revoke(self, worker: str) -> bool:
        """Refuse the keys of a worker from now on; say whether it had any."""
        async with self._changing_keys:
            known = await self.ledger.revoke(worker)
            self._forget_keys(worker)
        return known

    def _forget_keys(self, worker: str) -> None:
        self.keys = {hashed: owner for hashed, owner in self.keys.items() if owner != worker}

    async def ask_provider(self) -> dict[str, Any]:
        """Ask the provider whether it takes the credential; see `probe.ask_provider`."""
        assert self._desk is not None, "requests come while it runs"
        return await ask_provider(self._desk.upstream)

    def is_admin(self, request: Request) -> bool:
        """Say whether a request carries the admin token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._admin:
            return False
        return hmac.compare_digest(given.strip().encode(), self._admin.encode())

    async def relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a worker's request; when the worker leaves, the provider's request ends."""
        path = scope["path"].removeprefix("/v1")
        method = scope["method"]
        wire, metered = WORKER_ROUTES[method, path]
        worker = self.worker_of(scope)
        try:
            if worker is None:
                raise _without_worker(scope)
            body = await self._body(scope, receive) if method == "POST" else b""
        except Refusal as refusal:
            await _answer(send, refusal, wire)
            return
        assert self._desk is not None, "requests come while it runs"
        headers = tuple(scope["headers"])
        ask = Ask(worker, wire, method, path, scope["query_string"], headers, body, metered)
        exchange = Exchange(self._desk, ask, send)
        await self._watched(exchange, receive)

    async def _watched(self, exchange: Exchange, receive: Receive) -> None:
        work = asyncio.create_task(exchange.run())
        gone = asyncio.create_task(_disconnected(receive))
        self._under_way[work] = exchange
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            work.cancel()
            try:
                (result, _) = await asyncio.gather(work, gone, return_exceptions=True)
            finally:
                del self._under_way[work]
        # A cut answer ends by returning: the server closes a connection whose answer is not complete.
        if isinstance(result, Exception) and not isinstance(result, Cut):
            raise result

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self.section.max_body
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "agensh_bad_request", "The body ended early.")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise Refusal(413, "agensh_too_large", f"The body has more than {most} bytes.")
                    parts.append(part)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise Refusal(408, "agensh_bad_request", "The body did not arrive in time.") from None
        encoding = dict(scope["headers"]).get(b"content-encoding", b"identity").strip().lower()
        return _decoded(b"".join(parts), encoding, most)


def _without_worker(scope: Scope) -> Refusal:
    """Return the refusal of a request that carries no valid key, and say whether it carries one at all."""
    sent = [
        value.lower().startswith(b"bearer ") if name == b"authorization" else name == b"x-api-key"
        for name, value in scope["headers"]
    ]
    said = _BAD_KEY if any(sent) else _NO_KEY
    return Refusal(401, "agensh_bad_key", f"{said}Send the worker's gateway key: {_KEY_HEADERS}.")


_KEY_HEADERS = "Authorization: Bearer <key>, or x-api-key: <key>"
_NO_KEY = "The request carries no gateway key. "
_BAD_KEY = "This gateway key is not valid: it was revoked, replaced, or is of another run. "


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer what is not served in the shape of the APIs' errors, and say what is."""
    assert isinstance(error, HTTPException)
    known = ", ".join(f"{method} {path}" for method, path in sorted(_RELAYED, key=lambda route: route[1]))
    refusal = Refusal(
        error.status_code,
        "agensh_no_such_route",
        f"{request.method} {request.url.path[:200]}: not served here; the gateway relays {known}.",
    )
    headers = {name.decode(): value.decode() for name, value in refusal.headers()} | dict(error.headers or {})
    return Response(refusal.body(Wire.OTHER), error.status_code, headers)


def _decoded(body: bytes, encoding: bytes, most: int) -> bytes:
    if encoding in {b"", b"identity"}:
        return body
    if encoding not in {b"gzip", b"deflate"}:
        raise Refusal(415, "agensh_bad_request", "content-encoding: send the body plain, or as gzip.")
    try:
        reader = zlib.decompressobj(47)  # gzip or zlib, by its own header
        plain = reader.decompress(body, most)
    except zlib.error:
        raise Refusal(400, "agensh_bad_request", "The body is not what its content-encoding says.") from None
    if reader.unconsumed_tail:
        raise Refusal(413, "agensh_too_large", f"The body has more than {most} bytes.")
    return plain


async def _disconnected(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return


async def _answer(send: Send, refusal: Refusal, wire: Wire) -> None:
    body = refusal.body(wire)
    headers = [*refusal.headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _App(Starlette):
    """Relays what workers ask past the middleware: it would take part in every event of every stream."""

    gateway: Gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) in _RELAYED:
            await self.gateway.relay(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(gateway: Gateway, run_id: str = "") -> Starlette:
    """Return the application: the worker's routes below `/v1`, `/healthz`, and the admin's."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    async def root(_request: Request) -> Response:
        # Some CLIs look whether anybody is there before their first request.
        return JSONResponse({"service": "agensh gateway"})

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "ok", "run": run_id})

    async def usage(_request: Request) -> Response:
        return JSONResponse(gateway.accounts.usage(set(gateway.keys.values())))

    async def provider(_request: Request) -> Response:
        return JSONResponse(await gateway.ask_provider())

    async def own_key(request: Request) -> Response:
        worker = gateway.worker_of(request.scope)
        if worker is None:
            refusal = _without_worker(request.scope)
            headers = {name.decode(): value.decode() for name, value in refusal.headers()}
            return Response(refusal.body(Wire.OTHER), 401, headers)
        return JSONResponse({"worker": worker})

    async def new_key(request: Request) -> Response:
        try:
            value: Any = await request.json()
            worker = str(value["worker"])
            parse_worker_name(worker)
        except (ValueError, TypeError, KeyError, RecursionError):
            return JSONResponse({"error": 'Send {"worker": "<team>-worker<n>"}.'}, 422)
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 422)
        key = await gateway.new_key(worker)
        return JSONResponse({"worker": worker, "key": key}, headers={"cache-control": "no-store"})

    async def revoke(request: Request) -> Response:
        worker = request.path_params["worker"]
        if not await gateway.revoke(worker):
            return JSONResponse({"error": f"{worker!r} has no key."}, 404)
        return JSONResponse({"worker": worker, "revoked": True})

    def admin(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            if gateway.is_admin(request):
                try:
                    return await endpoint(request)
                except DatabaseUnavailable as error:
                    return JSONResponse({"error": str(error)}, 503)
            if gateway.worker_of(request.scope) is not None:
                return JSONResponse({"error": "This needs the gateway's admin token; yours is a worker's key."}, 403)
            return JSONResponse(
                {"error": "Send `Authorization: Bearer <admin token of the gateway>`."},
                status_code=401,
                headers={"www-authenticate": 'Bearer realm="agensh"'},
            )

        return guarded

    async def relayed(request: Request) -> Response:
        # A HEAD of a list; everything else of these routes is relayed before it gets here.
        raise HTTPException(405)

    app = _App(
        routes=[
            *(Route(f"/v1{path}", relayed, methods=[method]) for method, path in WORKER_ROUTES),
            Route("/", root, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/key", own_key, methods=["GET"]),
            Route("/usage", admin(usage), methods=["GET"]),
            Route("/provider", admin(provider), methods=["GET"]),
            Route("/keys", admin(new_key), methods=["POST"]),
            Route("/keys/{worker}", admin(revoke), methods=["DELETE"]),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_route},
    )
    app.gateway = gateway
    return app
