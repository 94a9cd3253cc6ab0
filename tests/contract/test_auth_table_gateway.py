"""Every route of the gateway × every kind of credential → the exact refusal; the rows come from its own routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agensh.clock import SystemClock
from agensh.gateway.app import WORKER_ROUTES, Gateway, create_app
from agensh.urls import sqlite_url
from tests.support.gateway import ADMIN, CREDENTIAL, ONE, TWO, Served, section, serving_gateway
from tests.support.provider import provider, usual
from tests.support.routes import filled, routes_of

ACCESS = {
    ("GET", "/"): "open",
    ("GET", "/healthz"): "open",
    ("GET", "/key"): "worker",
    ("GET", "/usage"): "admin",
    ("GET", "/provider"): "admin",
    ("POST", "/keys"): "admin",
    ("DELETE", "/keys/{worker}"): "admin",
    **{(method, f"/v1{path}"): "worker" for method, path in WORKER_ROUTES},
}
SEND_KEY = "Send the worker's gateway key: Authorization: Bearer <key>, or x-api-key: <key>."
KEY_MISSING = f"The request carries no gateway key. {SEND_KEY}"
KEY_NOT_VALID = f"This gateway key is not valid: it was revoked, replaced, or is of another run. {SEND_KEY}"
ADMIN_MISSING = "Send `Authorization: Bearer <admin token of the gateway>`."
ADMIN_OTHERS = "This needs the gateway's admin token; yours is a worker's key."


async def test_every_route_is_in_the_table(tmp_path: Path) -> None:
    database = sqlite_url(tmp_path / "gateway.sqlite3")
    gateway = Gateway(section("http://127.0.0.1:9/v1"), "", "", database, SystemClock())
    routes = routes_of(create_app(gateway))
    await gateway.ledger.dispose()
    assert set(routes) == set(ACCESS), "a route of the gateway is missing from ACCESS: say who may call it"
    assert {route for route, access in ACCESS.items() if access == "open"} == {("GET", "/"), ("GET", "/healthz")}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with provider(usual) as upstream, serving_gateway(tmp_path, upstream) as gateway:
        yield gateway


def ids(route: tuple[str, str]) -> str:
    return " ".join(route)


CLOSED = [route for route, access in ACCESS.items() if access != "open"]


async def ask(served: Served, route: tuple[str, str], headers: Mapping[str, str | bytes], query: Any = None) -> Any:
    method, path = route
    body = {"worker": TWO} if path == "/keys" else {"model": "m"}
    return await served.http.request(
        method,
        filled(path, {"worker": TWO}),
        headers=[(name.encode(), text.encode() if isinstance(text, str) else text) for name, text in headers.items()],
        params=query,
        json=body if method == "POST" else None,
    )


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_without_a_valid_credential_it_is_401(served: Served, route: tuple[str, str]) -> None:
    admin = ACCESS[route] == "admin"
    token, revoked = ADMIN if admin else served.keys[ONE], served.keys[TWO]
    await served.http.delete(f"/keys/{TWO}", headers={"Authorization": f"Bearer {ADMIN}"})
    query = {"key": token, "api_key": token, "access_token": token, "authorization": f"Bearer {token}"}
    table: list[tuple[dict[str, str | bytes], Any]] = [
        ({}, None),
        ({}, query),
        ({"authorization": ""}, None),
        ({"authorization": "Bearer"}, None),
        ({"authorization": f"Basic {token}"}, None),
        ({"authorization": token}, None),
        ({"authorization": b"Bearer \xff\xfe' OR 1=1 --"}, None),
        ({"authorization": f"Bearer {token[:-1]}"}, None),
        ({"authorization": f"Bearer {token}x"}, None),
        ({"authorization": f"Bearer {revoked}"}, None),
        ({"authorization": f"Bearer {CREDENTIAL}"}, None),
        ({"x-api-key": f"{token}x"}, None),
        ({"x-api-key": ADMIN}, None),
        ({"api-key": token}, None),
        ({"cookie": f"key={token}"}, None),
    ]
    for headers, params in table:
        answer = await ask(served, route, headers, params)
        assert (headers, answer.status_code) == (headers, 401)
        error = answer.json()["error"]
        carried = "x-api-key" in headers or headers.get("authorization", "")[:7] in ("Bearer ", b"Bearer ")
        said = ADMIN_MISSING if admin else KEY_NOT_VALID if carried else KEY_MISSING
        assert said == (error if admin else error["message"])
        assert answer.headers["www-authenticate"] == 'Bearer realm="agensh"'
    assert served.gateway.accounts.usage(set())["workers"] == {}, "nothing reached the provider"


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_each_credential_opens_its_own_doors(served: Served, route: tuple[str, str]) -> None:
    workers = {"authorization": f"Bearer {served.keys[ONE]}"}
    admins = {"authorization": f"Bearer {ADMIN}"}
    by_worker, by_admin = await ask(served, route, workers), await ask(served, route, admins)
    if ACCESS[route] == "admin":
        assert (by_worker.status_code, by_worker.json()) == (403, {"error": ADMIN_OTHERS})
        assert by_admin.status_code == 200
    else:
        assert by_worker.status_code == 200
        assert by_admin.status_code == 401, "the admin asks no model"
        assert (await ask(served, route, {"x-api-key": served.keys[ONE]})).status_code == 200


@pytest.mark.parametrize("path", ["/nowhere", "/v1", "/v1/files", "/v1/responses/x", "//v1/models", "/docs"])
async def test_what_is_not_relayed_is_not_there(served: Served, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = await served.http.request(method, path, headers=served.auth())
        assert answer.status_code in {404, 405}
        error = answer.json()["error"]
        assert error["code"] == "agensh_no_such_route"
        assert error["message"].startswith(f"{method} ")
        assert "the gateway relays POST /v1/chat/completions, POST /v1/messages, " in error["message"]
