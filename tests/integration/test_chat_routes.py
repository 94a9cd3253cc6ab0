"""Every route of the chat with values it does not expect: an answer in the error's shape, never a crash."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from agensh.embedded.chat.app import create_app

ADMIN = ("admin", "long-enough-1")
BODIES: list[Any] = [
    None,
    [],
    {},
    "text",
    7,
    [1, None],
    [{}],
    {"message": 1, "username": [], "channel_id": None, "user_ids": "x", "name": {}, "props": 3, "seq": -1},
    dict.fromkeys(("message", "channel_id", "user_id", "team_id", "post_id", "token_id", "terms", "roles"), "x"),
]
QUERIES = ["", "?page=-1&per_page=x&since=²&limit_after=-3", "?after=x&before=%00", "?since=99999999999999999999"]


def _routes(client: TestClient) -> Iterator[tuple[str, str]]:
    app: Any = client.app
    pending = list(app.routes)
    while pending:
        route = pending.pop()
        pending += getattr(getattr(route, "original_router", None), "routes", [])
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path


def _filled(path: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(tmp_path, admin=ADMIN)) as made:
        yield made


def test_no_value_crashes_a_route(client: TestClient) -> None:
    login = client.post("/api/v4/users/login", json={"login_id": ADMIN[0], "password": ADMIN[1]})
    client.cookies.clear()
    admin = {"Authorization": f"Bearer {login.headers['Token']}"}
    team = client.post("/api/v4/teams", json={"name": "tt", "display_name": "T", "type": "O"}, headers=admin).json()
    fields = {"team_id": team["id"], "name": "cc", "display_name": "C", "type": "O"}
    channel = client.post("/api/v4/channels", json=fields, headers=admin).json()
    post = client.post("/api/v4/posts", json={"channel_id": channel["id"], "message": "m"}, headers=admin).json()
    real = {"team_id": team["id"], "channel_id": channel["id"], "post_id": post["id"], "user_id": "me"}
    paths: list[dict[str, str]] = [{}, real]
    routes = sorted(set(_routes(client)))
    assert len(routes) > 90
    asked = 0
    for method, path in routes:
        if path.endswith(("/logout", "/sessions/revoke/all", "/active")) or (method, path[-10:]) == (
            "DELETE",
            "/{user_id}",
        ):
            continue  # these would end the session that asks
        full = path if path.startswith("/api/v4") else f"/api/v4{path}"
        writes = method in {"POST", "PUT"}
        for values, query in itertools.product(paths, QUERIES[:1] if writes else QUERIES):
            url = re.sub(r"{\w+}", "z z", _filled(full, values)) + query
            for body in BODIES if writes else [None]:
                response = client.request(method, url, json=body, headers=admin)
                client.cookies.clear()
                asked += 1
                assert response.status_code < 500 or response.status_code == 501, (method, url, body, response.text)
                if response.status_code >= 400:
                    assert response.json()["status_code"] == response.status_code
    assert asked > 1000


def test_every_route_but_a_few_needs_a_session(client: TestClient) -> None:
    open_to_all = {
        ("GET", "/api/v4/system/ping"),
        ("GET", "/api/v4/config/client"),
        ("GET", "/api/v4/license/client"),
        ("GET", "/api/v4/plugins/webapp"),
        ("POST", "/api/v4/users"),
        ("POST", "/api/v4/users/login"),
        ("POST", "/api/v4/users/logout"),
    }
    for method, path in sorted(set(_routes(client))):
        full = path if path.startswith("/api/v4") else f"/api/v4{path}"
        if (method, full) not in open_to_all:
            response = client.request(method, re.sub(r"{\w+}", "me", full), json={})
            assert (response.status_code, response.json()["id"]) == (401, "api.context.session_expired.app_error"), full
