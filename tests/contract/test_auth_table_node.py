"""Every route of a node host × every kind of token → the exact refusal; the rows come from its Starlette routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from agensh.clock import SystemClock
from router.mcp.notices import PendingMessage
from router.mcp.server import create_mcp_app
from router.status import status_routes
from tests.support.routes import filled, routes_of
from tests.support.uvicorn_server import serving
from tests.support.workers import StubWorker

CLOCK = SystemClock()
NODE_ADMIN = "node-admin-token"
ACCESS = {
    ("*", "/mcp/{worker}"): "worker",
    ("GET", "/mcp/{worker}/seen"): "worker",
    ("GET", "/pending/{worker}"): "worker",
    ("POST", "/hooks/{worker}/{style}"): "worker",
    ("GET", "/status"): "admin",
    ("POST", "/unpark"): "admin",
    ("GET", "/healthz"): "open",
}
MISSING = "A bearer token is missing: send `Authorization: Bearer <MCP token of the worker>`."
INVALID = "The bearer token is not valid."
OTHERS = "The bearer token belongs to another worker than 'demo-worker1'."
ADMIN_MISSING = "Send `Authorization: Bearer <node admin token of the run>`."
ADMIN_OTHERS = "This needs the run's node admin token; yours is a worker's."
ONE, TWO, GONE = "demo-worker1", "demo-worker2", "demo-worker3"


async def read_status() -> dict[str, Any]:
    return {"workers": []}


def node_app(workers: dict[str, StubWorker]) -> Starlette:
    app = create_mcp_app(workers, clock=CLOCK)
    app.router.routes.extend(status_routes(workers, NODE_ADMIN, "run-1", read_status, list))
    return app


def new_workers() -> dict[str, StubWorker]:
    return {name: StubWorker(name, CLOCK) for name in (ONE, TWO, GONE)}


ROUTES = routes_of(node_app(new_workers()))
CLOSED = [route for route in ROUTES if ACCESS.get(route) != "open"]


@dataclass
class Node:
    """A node host's routes, served, and the workers behind them."""

    http: httpx.AsyncClient
    workers: dict[str, StubWorker]

    async def ask(
        self, route: tuple[str, str], header: bytes | None, params: Mapping[str, str] | None = None
    ) -> httpx.Response:
        method, path = route
        headers = [(b"Accept", b"application/json, text/event-stream"), (b"Content-Type", b"application/json")]
        return await self.http.request(
            "POST" if method == "*" else method,
            filled(path, {"worker": ONE, "style": "claude"}),
            headers=headers + ([] if header is None else [(b"Authorization", header)]),
            params=params,
            content=b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}' if method == "*" else None,
        )


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    workers = new_workers()
    async with (
        serving(node_app(workers)) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http,
    ):
        yield Node(http, workers)


def ids(route: tuple[str, str]) -> str:
    return " ".join(route)


def test_every_route_is_in_the_table() -> None:
    assert set(ROUTES) == set(ACCESS), "a route of the node host is missing from ACCESS: say who may call it"
    assert [route for route, access in ACCESS.items() if access == "open"] == [("GET", "/healthz")]


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_without_a_valid_token_it_is_401(node: Node, route: tuple[str, str]) -> None:
    admin = ACCESS.get(route) == "admin"
    token = NODE_ADMIN if admin else node.workers[ONE].token
    removed = node.workers.pop(GONE)
    query = {"token": token, "access_token": token, "authorization": f"Bearer {token}"}
    table: list[tuple[bytes | None, Mapping[str, str] | None, str]] = [
        (None, None, MISSING),
        (b"", None, MISSING),
        (b"Bearer", None, MISSING),
        (f"Basic {token}".encode(), None, MISSING),
        (token.encode(), None, MISSING),
        (None, query, MISSING),
        (b"Bearer \xff\xfe' OR 1=1 --", None, INVALID),
        (f"Bearer {token[:-1]}".encode(), None, INVALID),
        (f"Bearer {token}x".encode(), None, INVALID),
        (f"Bearer {removed.token}".encode(), None, INVALID),  # its worker is no longer one of this host
        (f"Bearer {'x' * 9000}".encode(), None, INVALID),
    ]
    if not admin:
        table.append((f"Bearer {NODE_ADMIN}".encode(), None, INVALID))  # no key to the workers' routes
    for header, params, message in table:
        answer = await node.ask(route, header, params)
        expected = ADMIN_MISSING if admin else message
        assert (header, answer.status_code, answer.json()) == (header, 401, {"error": expected})
        assert answer.headers["www-authenticate"] == 'Bearer realm="agensh"'


@pytest.mark.parametrize("route", CLOSED, ids=ids)
async def test_a_token_of_somebody_else_is_403(node: Node, route: tuple[str, str]) -> None:
    admin = ACCESS.get(route) == "admin"
    refused = await node.ask(route, f"Bearer {node.workers[TWO].token}".encode())
    assert (refused.status_code, refused.json()) == (403, {"error": ADMIN_OTHERS if admin else OTHERS})
    own = NODE_ADMIN if admin else node.workers[ONE].token
    assert (await node.ask(route, f"Bearer {own}".encode())).status_code == 200


async def test_nobody_collects_or_acknowledges_anothers_notices(node: Node) -> None:
    desk = node.workers[ONE].desk
    desk.messages.append(PendingMessage("e1", TWO, "for worker 1 only", CLOCK.time()))
    two = {"Authorization": f"Bearer {node.workers[TWO].token}"}
    for path in (f"/pending/{ONE}", f"/pending/{ONE}?ack=1", f"/pending/{TWO}", f"/pending/{TWO}?agent={ONE}"):
        answer = await node.http.get(path, headers=two)
        assert "for worker 1 only" not in answer.text
    for path in (f"/hooks/{ONE}/claude", f"/hooks/{TWO}/claude", f"/hooks/{TWO}/../{ONE}/copilot"):
        assert "for worker 1 only" not in (await node.http.post(path, headers=two)).text
    assert desk.handed_out == []
    assert desk.acknowledged == []
    own = await node.http.get(f"/pending/{ONE}", headers={"Authorization": f"Bearer {node.workers[ONE].token}"})
    assert "for worker 1 only" in own.text


@pytest.mark.parametrize("name", ["nobody", "%2e%2e", "demo-worker1%00", "demo-worker1%0a", "DEMO-WORKER1"])
async def test_only_a_workers_token_learns_which_names_exist(node: Node, name: str) -> None:
    for path in (f"/mcp/{name}", f"/pending/{name}"):
        assert (await node.http.get(path)).status_code == 401
        stranger = await node.http.get(path, headers={"Authorization": "Bearer x"})
        assert (stranger.status_code, stranger.json()) == (401, {"error": INVALID})
        known = await node.http.get(path, headers={"Authorization": f"Bearer {node.workers[ONE].token}"})
        assert known.status_code == 404
        assert "\n" not in known.json()["error"]
    hooks = f"/hooks/{name}/claude"
    assert (await node.http.post(hooks)).status_code == 401
    assert (await node.http.post(hooks, headers={"Authorization": "Bearer x"})).status_code == 401
