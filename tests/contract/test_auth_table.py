"""Every route of the board service × every kind of token → the exact refusal.

The rows come from the OpenAPI description and from the routes themselves: a new route appears here by itself, and fails
until it says who may call it (`x-access`) and keeps to that.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from board_service.api.deps import ACCESS
from board_service.app import create_app
from board_service.settings import BoardSettings
from tests.support.board_server import serving_board
from tests.support.routes import filled, routes_of

ADMIN = "bootstrap-admin-token"
NO_TOKENS = ("none", "empty", "garbage", "truncated", "longer", "revoked", "other scheme", "in the query")

BOARD = create_app(BoardSettings())
DESCRIBED: dict[tuple[str, str], dict[str, Any]] = {
    (method.upper(), path): operation
    for path, operations in BOARD.openapi()["paths"].items()
    for method, operation in operations.items()
}
HIDDEN = {("GET", "/openapi.json"): "anyone"}
PARAMETERS = {"board": "main", "label": "G1", "agent": "w1", "worker": "w1"}
BODIES: dict[str, dict[str, Any]] = {
    "/board/{board}/note": {"type": "FACT", "content": "x"},
    "/tokens": {"worker": "w9"},
    "/board/{board}/workers": {"workers": [{"worker": "w1", "state": "busy"}]},
}
QUERIES = {"/board/{board}/grep": {"q": "x"}}
WHO = ("w1", "w2", "elsewhere", "reader", "admin")
"""w1 owns what the paths name; w2 is of the same board, `elsewhere` of another one, the reader of the same."""
ALLOWED = {
    "anyone": {*WHO},
    "read": {"w1", "w2", "reader", "admin"},
    "write": {"w1", "w2", "admin"},
    "claimant": {"w1"},
    "agent": {"w1", "admin"},
    "monitor": {"reader", "admin"},
    "admin": {"admin"},
}


def access_of(route: tuple[str, str]) -> str:
    if route in HIDDEN:
        return HIDDEN[route]
    return str(DESCRIBED[route].get("x-access", "")).partition(":")[0]


CLOSED = [route for route in {**DESCRIBED, **HIDDEN} if access_of(route) != "open"]


def ids(route: object) -> str:
    return " ".join(route) if isinstance(route, tuple) else str(route)


def _bytes(headers: Mapping[str, str | bytes]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in headers.items()]


@dataclass
class Table:
    """A board with one token for every role."""

    http: httpx.AsyncClient
    tokens: dict[str, str]

    async def ask(
        self, route: tuple[str, str], headers: Mapping[str, str | bytes], params: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any], httpx.Headers]:
        method, path = route
        query = QUERIES.get(path, {}) | (params or {})
        sent: dict[str, Any] = {"headers": _bytes(headers), "params": query, "json": BODIES.get(path)}
        async with self.http.stream(method, filled(path, PARAMETERS), **sent) as answer:
            refused = answer.status_code >= 400
            if refused:
                await answer.aread()
            return answer.status_code, answer.json() if refused else {}, answer.headers

    def bearer(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}"}


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    settings = BoardSettings(data=str(tmp_path), admin_token=SecretStr(ADMIN))
    async with (
        serving_board(settings) as (board, _),
        httpx.AsyncClient(base_url=board.url, trust_env=False, timeout=20) as http,
    ):
        tokens = {"admin": ADMIN}
        for who, role, name in (
            ("w1", "worker", "main"), ("w2", "worker", "main"), ("elsewhere", "worker", "other"),
            ("reader", "reader", "main"), ("revoked", "worker", "main"),
        ):  # fmt: skip
            body = {"worker": who, "role": role, "board": name}
            made = await http.post("/tokens", json=body, headers={"Authorization": f"Bearer {ADMIN}"})
            tokens[who] = made.json()["token"]
        admin = {"Authorization": f"Bearer {ADMIN}"}
        assert (await http.delete("/tokens/revoked", headers=admin)).status_code == 200
        table = Table(http, tokens)
        note = {"type": "CLAIM", "content": "the claim of w1"}
        assert (await http.post("/board/main/note", json=note, headers=table.bearer("w1"))).json()["label"] == "G1"
        yield table


def test_every_route_is_described_and_says_who_may_call_it() -> None:
    assert set(routes_of(BOARD)) == {*DESCRIBED, *HIDDEN}
    for route, operation in DESCRIBED.items():
        assert operation.get("x-access") in ACCESS.values(), f"{ids(route)} does not say who may call it (x-access)"
        assert bool(operation.get("security")) == (access_of(route) != "open"), f"{ids(route)}: security"
    assert {route for route in DESCRIBED if access_of(route) == "open"} == {("GET", "/healthz"), ("GET", "/readyz")}


def credentials(kind: str, token: str, revoked: str) -> tuple[dict[str, bytes], dict[str, str] | None]:
    """Return headers and query of a request without a valid token of that kind."""
    header = {
        "empty": b"Bearer",
        "garbage": b"Bearer \xff\xfe' OR 1=1 --",
        "truncated": f"Bearer {token[:-1]}".encode(),
        "longer": f"Bearer {token}x".encode(),
        "revoked": f"Bearer {revoked}".encode(),
        "other scheme": f"Basic {token}".encode(),
    }.get(kind)
    query = {"token": token, "access_token": token, "authorization": f"Bearer {token}"}
    return {} if header is None else {"Authorization": header}, query if kind == "in the query" else None


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_without_a_valid_token_it_is_401(table: Table, route: tuple[str, str]) -> None:
    for kind in NO_TOKENS:
        headers, params = credentials(kind, table.tokens["admin"], table.tokens["revoked"])
        status, body, answered = await table.ask(route, headers, params)
        assert (kind, status, answered.get("www-authenticate")) == (kind, 401, "Bearer")
        assert body == {
            "status": "error",
            "reason": "Send a valid token: Authorization: Bearer <token>.",
            "errors": [{"code": "unauthorised", "message": body["reason"]}],
        }


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_a_token_does_what_its_role_and_its_owner_may(table: Table, route: tuple[str, str]) -> None:
    allowed = ALLOWED[access_of(route)]
    for who in sorted(WHO, key=lambda who: who in allowed):  # who may, may also revoke
        status, body, _ = await table.ask(route, table.bearer(who))
        if who in allowed:
            assert (who, status < 300) == (who, True), body
        else:
            assert (who, status, body["status"]) == (who, 403, "error")
            assert re.search(r"token|worker|you are", body["reason"]), body


@pytest.mark.parametrize("path", ["/nowhere", "/board/main/nowhere", "/docs", "/redoc", "//board/main", "/HEALTHZ"])
async def test_a_path_that_is_not_there_tells_strangers_nothing(table: Table, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert (await table.http.request(method, path)).status_code == 401
