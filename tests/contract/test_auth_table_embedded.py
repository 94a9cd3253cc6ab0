"""No route of the embedded forge and chat answers a stranger, but those that have to; the rows come from the routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agensh.embedded.chat.app import create_app as create_chat
from agensh.embedded.forge.app import create_app as create_forge
from tests.support.chat_server import running_chat
from tests.support.routes import filled, routes_of
from tests.support.servers import running_forge

FORGE_OPEN = {
    ("GET", "/"): {303, 302, 200},
    ("GET", "/api/v1/version"): {200},
    ("GET", "/api/healthz"): {200},
    ("GET", "/user/login"): {200},
    ("POST", "/user/login"): {200, 303, 400, 403},
    ("GET", "/user/logout"): {303},
    ("POST", "/user/logout"): {303},
}
# The push channel tells strangers in its own words, as the real server does, and ends.
EVENTS = "event: close\ndata: unauthorized\n\n"
CHAT_OPEN = {
    ("GET", "/api/v4/system/ping"): {200},
    ("GET", "/api/v4/config/client"): {200},
    ("GET", "/api/v4/license/client"): {200},
    ("GET", "/api/v4/plugins/webapp"): {200},
    ("POST", "/api/v4/users"): {403},
    ("POST", "/api/v4/users/login"): {400, 401},
    ("POST", "/api/v4/users/logout"): {200},
}
VALUES = {
    "owner": "team", "name": "work", "user": "x", "number": "1", "comment_id": "1", "label_id": "1", "review_id": "1",
    "token": "1", "branch": "main", "rule_name": "main", "file": "a", "sha": "main", "ref": "main", "kind": "diff",
    "span": "a...b", "base": "main", "head": "x", "thread_id": "1", "user_id": "me", "team_id": "a" * 26,
    "channel_id": "a" * 26, "post_id": "a" * 26, "token_id": "a" * 26, "emoji": "+1", "email": "a@b", "team_name": "t",
}  # fmt: skip
STRANGERS: dict[str, dict[str, str]] = {
    "no token": {},
    "garbage": {"Authorization": "Bearer garbage"},
    "a token of somebody": {"Authorization": f"token {'0' * 40}"},
    "a wrong password": {"Authorization": "Basic cm9vdC1hZG1pbjp3cm9uZw=="},
    "a made-up session": {"Cookie": "i_like_gitea=0123456789abcdef; MMAUTHTOKEN=aaaaaaaaaaaaaaaaaaaaaaaaaa"},
}
FORGE_ROUTES = routes_of(create_forge(Path("unused")))
CHAT_ROUTES = routes_of(create_chat(Path("unused")))


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        running_forge(tmp_path_factory.mktemp("forge")) as running,
        httpx.Client(base_url=running.url, trust_env=False, timeout=20) as http,
    ):
        yield http


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        running_chat(tmp_path_factory.mktemp("chat")) as running,
        httpx.Client(base_url=running.url, trust_env=False, timeout=20) as http,
    ):
        yield http


def refused(http: httpx.Client, route: tuple[str, str], opened: dict[tuple[str, str], set[int]]) -> None:
    method, path = route
    for who, headers in STRANGERS.items():
        answer = http.request(method, filled(path, VALUES), headers=headers, json={} if method != "GET" else None)
        if path == "/user/events":
            assert (who, answer.text) == (who, EVENTS)
            continue
        allowed = opened.get(route) if who == "no token" else {*opened.get(route, ()), 401}
        assert answer.status_code in (allowed or {401}), f"{who}: {answer.status_code} {answer.text[:200]}"
        assert answer.status_code < 500


def ids(route: tuple[str, str]) -> str:
    return " ".join(route)


@pytest.mark.parametrize("route", FORGE_ROUTES, ids=ids)
def test_the_forge_refuses_strangers(forge: httpx.Client, route: tuple[str, str]) -> None:
    refused(forge, route, FORGE_OPEN)


@pytest.mark.parametrize("route", CHAT_ROUTES, ids=ids)
def test_the_chat_refuses_strangers(chat: httpx.Client, route: tuple[str, str]) -> None:
    refused(chat, route, CHAT_OPEN)


def test_the_open_routes_are_there() -> None:
    assert set(FORGE_OPEN) <= set(FORGE_ROUTES)
    assert set(CHAT_OPEN) <= set(CHAT_ROUTES)
