"""Requests to the provider: which headers go there and come back, and the connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from agensh.clock import Clock
from agensh.gateway.credential import credential_headers
from agensh.spec import GatewaySection

CONNECT_SECONDS = 15.0
KEEP_ALIVE = 60.0  # seconds an idle connection to the provider is kept
LONGEST_RETRY_AFTER = 3600.0  # seconds; a longer wait is the worker's affair alone
_HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_NOT_TO_PROVIDER = _HOP_BY_HOP | {
    b"accept-encoding", b"api-key", b"authorization", b"content-encoding", b"content-length", b"cookie", b"expect",
    b"forwarded", b"host", b"x-api-key",
}  # fmt: skip
_NOT_TO_WORKER = _HOP_BY_HOP | {b"alt-svc", b"content-length", b"date", b"server", b"set-cookie"}
_SECRET_PARAMETERS = {"access_token", "api-key", "api-version", "api_key", "authorization", "key", "token"}

Headers = Iterable[tuple[bytes, bytes]]


class Upstream:
    """The provider of one run."""

    def __init__(self, section: GatewaySection, credential: str) -> None:
        self._base = section.base_url.rstrip("/")
        self._version = section.api_version
        self._fixed = {**section.headers, **credential_headers(section, credential)}
        self._forward_worker = section.forward_worker
        self._credential = credential.encode()
        self._http = aiohttp.ClientSession(
            # The gate bounds how many there are.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=section.idle_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    @asynccontextmanager
    async def request(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes, worker: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to `path` below the provider's root; the body of the answer is not read yet.

        Leaving before its end closes the connection. Raises aiohttp.ClientError and TimeoutError.
        """
        url = URL(f"{self._base}{path}{self._query(query)}", encoded=True)
        sent = self._headers(headers, worker)
        async with self._http.request(method, url, headers=sent, data=body or None, allow_redirects=False) as answer:
            yield answer

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.close()

    def without_credential(self, body: bytes) -> bytes:
        """Return an error's body without the credential, should the provider repeat it there."""
        return body.replace(self._credential, b"***") if self._credential else body

    def _query(self, query: bytes) -> str:
        pairs = [
            (name, value)
            for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True)
            if name.lower() not in _SECRET_PARAMETERS
        ]
        if self._version:
            pairs.append(("api-version", self._version))
        return f"?{urlencode(pairs)}" if pairs else ""

    def _headers(self, headers: Headers, worker: str) -> CIMultiDict[str]:
        sent: CIMultiDict[str] = CIMultiDict()
        for name, value in headers:
            if name not in _NOT_TO_PROVIDER and not name.startswith((b"x-agensh-", b"x-forwarded-")):
                sent.add(name.decode("latin-1"), value.decode("latin-1"))
        sent["accept-encoding"] = "identity"  # what is compressed cannot be metered
        if self._forward_worker:
            sent["x-agensh-worker"] = worker
        for header, text in self._fixed.items():
            sent[header] = text
        return sent


def answer_headers(answer: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of the provider's answer that reach the worker."""
    return [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in _NOT_TO_WORKER]


def asked_pause(answer: aiohttp.ClientResponse, clock: Clock) -> float | None:
    """Return the seconds the provider asked to wait; None when it did not say, or nothing sensible."""
    seconds: float | None = None
    value = answer.headers.get("retry-after", "").strip()
    if milliseconds := _number(answer.headers.get("retry-after-ms", "")):
        seconds = milliseconds / 1000
    elif (seconds := _number(value)) is None and value:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - clock.time()
        except (ValueError, TypeError):
            return None
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_RETRY_AFTER else None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else None
