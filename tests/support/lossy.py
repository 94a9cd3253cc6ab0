"""A connection on which answers get lost: the request arrives and takes effect, and its sender never hears of it."""

from __future__ import annotations

import re

import httpx

from agensh.clients.http import no_cookies


class LossyTransport(httpx.AsyncHTTPTransport):
    """Loses the first answers to requests that match; `lost` says to which."""

    def __init__(self, method: str, path: str, times: int) -> None:
        super().__init__()
        self._method = method
        self._path = re.compile(path)
        self._times = times
        self.lost: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.method == self._method and self._path.search(request.url.path) and len(self.lost) < self._times:
            await response.aread()
            await response.aclose()
            self.lost.append(request.url.path)
            raise httpx.ReadError("the answer got lost", request=request)
        return response


def lossy_http(method: str, path: str, times: int = 1) -> tuple[httpx.AsyncClient, LossyTransport]:
    """Return a client for the typed clients and its transport."""
    transport = LossyTransport(method, path, times)
    return httpx.AsyncClient(transport=transport, cookies=no_cookies(), timeout=30, trust_env=False), transport
