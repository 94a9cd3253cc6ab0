"""Client of the gateway's admin routes."""

from __future__ import annotations

from typing import Any

import httpx

from agensh.clients.http import new_http_client
from agensh.errors import ServiceError


class GatewayClient:
    """The gateway as its admin sees it. Every call raises ServiceError when it does not answer as expected."""

    def __init__(self, url: str, admin_token: str, http: httpx.AsyncClient | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {admin_token}"}
        self._own = http is None
        self._http = http or new_http_client()

    async def aclose(self) -> None:
        """Close the connections, unless they are somebody else's."""
        if self._own:
            await self._http.aclose()

    async def usage(self) -> dict[str, Any]:
        """Return what the team and each worker have used (`GET /usage`)."""
        return await self._call("GET", "/usage")

    async def new_key(self, worker: str) -> str:
        """Make a key for a worker; its former ones are worth nothing from then on."""
        return str((await self._call("POST", "/keys", json={"worker": worker}))["key"])

    async def key_works(self, key: str) -> bool:
        """Say whether a worker's key is valid; the provider is not asked."""
        try:
            await self._call("GET", "/key", headers={"Authorization": f"Bearer {key}"})
        except ServiceError as error:
            if error.status == 401:
                return False
            raise
        return True

    async def revoke(self, worker: str) -> None:
        """Revoke the keys of a worker."""
        await self._call("DELETE", f"/keys/{worker}")

    async def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, f"{self._url}{path}", **({"headers": self._headers} | more))
            value = answer.json()
        except httpx.TransportError as error:
            raise ServiceError("gateway", 0, f"{type(error).__name__} at {self._url}", retryable=True) from error
        except ValueError as error:
            raise ServiceError("gateway", answer.status_code, "the answer is no JSON") from error
        if answer.status_code >= 400 or not isinstance(value, dict):
            raise ServiceError(
                "gateway", answer.status_code, str(value)[:300], retryable=answer.status_code in {429, 502, 503, 504}
            )
        return value
