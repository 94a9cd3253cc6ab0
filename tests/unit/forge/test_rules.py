"""The forge's small rules as tables of cases."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import cast

import pytest

from agensh.embedded.forge import scopes
from agensh.embedded.forge.errors import ApiError
from agensh.embedded.forge.files import clean_path
from agensh.embedded.forge.http_backend import read_commands
from agensh.embedded.forge.shapes_base import parse_stamp, stamp
from agensh.embedded.forge.store import statuses
from agensh.embedded.forge.store.database import Row
from agensh.embedded.forge.store.notifications import CODE, MENTION, work_in_progress
from agensh.embedded.forge.store.protections import pattern_matches


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@ann look", ["ann"]),
        ("hi @demo-worker12, and @b.c!", ["demo-worker12", "b.c"]),
        ('(@ann) [@ben] "@cat"', ["ann", "ben", "cat"]),
        ("mail a@b.org", []),
        ("x@ann", []),
        ("`@ann` and ```\n@ben\n``` @cat", ["cat"]),
        ("an open ``` fence @ann", []),
        ("@ann.", ["ann"]),
        ("@", []),
        ("line\n@ann", ["ann"]),
    ],
)
def test_mentions(text: str, names: list[str]) -> None:
    assert MENTION.findall(CODE.sub(" ", text)) == names


@pytest.mark.parametrize(
    ("title", "unfinished"),
    [("WIP: x", True), ("wip: x", True), ("[WIP] x", True), ("x WIP:", False), ("WIPE: x", False), ("", False)],
)
def test_work_in_progress(title: str, unfinished: bool) -> None:
    assert work_in_progress(title) is unfinished


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("release/*", "release/1", True),
        ("release/*", "release/1/2", False),
        ("release/**", "release/1/2", True),
        ("v?", "v1", True),
        ("v?", "v12", False),
        ("v[12]", "v2", True),
        ("v[12]", "v3", False),
        ("*", "main", True),
        ("*", "a/b", False),
        ("a.b*", "axb", False),
        ("main", "main", False),  # an exact name is not a pattern; it is compared as it is
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert pattern_matches(pattern, name) is matches


@pytest.mark.parametrize(
    ("states", "together"),
    [
        ([], "pending"),
        (["success"], "success"),
        (["success", "skipped", "warning"], "success"),
        (["success", "pending"], "pending"),
        (["pending", "error"], "failure"),
        (["success", "failure"], "failure"),
    ],
)
def test_combined_states(states: list[str], together: str) -> None:
    assert statuses.combined(cast(list[Row], [{"state": state} for state in states])) == together


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("repos/a/b", ["repository"]),
        ("repos/a/b/issues/1/comments", ["issue"]),
        ("repos/a/b/labels", ["issue"]),
        ("repos/a/b/pulls/1", ["repository"]),
        ("repos/a/b/notifications", ["notification"]),
        ("repos/issues/search", ["issue"]),
        ("notifications/threads/1", ["notification"]),
        ("admin/users", ["admin"]),
        ("user/repos", ["user", "repository"]),
        ("users/ann/tokens", ["user"]),
        ("version", []),
    ],
)
def test_areas_of_scopes(path: str, found: list[str]) -> None:
    assert scopes.areas(path) == found


@pytest.mark.parametrize(
    ("have", "method", "path", "passes"),
    [
        (["all"], "POST", "admin/users", True),
        (["write:issue"], "GET", "repos/a/b/issues", True),
        (["read:issue"], "POST", "repos/a/b/issues", False),
        (["read:issue"], "GET", "repos/a/b", False),
        (["read:user"], "GET", "user/repos", False),
        (["read:user", "read:repository"], "GET", "user/repos", True),
    ],
)
def test_scopes(have: list[str], method: str, path: str, passes: bool) -> None:
    token = cast(Row, {"scopes": json.dumps(have)})
    if passes:
        scopes.check(token, method, path)
    else:
        with pytest.raises(ApiError, match="required scope"):
            scopes.check(token, method, path)


@pytest.mark.parametrize(
    ("have", "want", "broader"),
    [
        (["all"], ["sudo"], False),
        (["read:issue"], ["read:issue"], False),
        (["write:issue"], ["read:issue"], False),
        (["read:issue"], ["write:issue"], True),
        (["write:issue"], ["all"], True),
    ],
)
def test_a_token_cannot_grow(have: list[str], want: list[str], broader: bool) -> None:
    assert scopes.broader(cast(Row, {"scopes": json.dumps(have)}), want) is broader


@pytest.mark.parametrize("path", ["", "/", "..", "a/../b", ".git/config", "a/.git", "a\0b", "a\nb"])
def test_paths_that_leave_the_tree(path: str) -> None:
    with pytest.raises(ApiError):
        clean_path(path)


@pytest.mark.parametrize(
    ("path", "clean"), [("/a/b", "a/b"), ("a//b", "a/b"), ("./a", "a"), (".gitignore", ".gitignore")]
)
def test_paths_that_stay(path: str, clean: str) -> None:
    assert clean_path(path) == clean


def test_times() -> None:
    assert stamp(0) == "1970-01-01T00:00:00Z"
    assert stamp(None) is None
    assert parse_stamp("1970-01-01T00:00:05Z", "since") == 5
    assert parse_stamp("1970-01-01T01:00:05 01:00", "since") == 5  # a plus sign that was not escaped
    assert parse_stamp("1970-01-01T00:00:05.999Z", "since") == 5
    for text in ("now", "1970-01-01T00:00:05"):
        with pytest.raises(ValueError, match="since"):
            parse_stamp(text, "since")


def line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


PUSH = (
    line(f"{'0' * 40} {'1' * 40} refs/heads/new\0 report-status")
    + line(f"{'1' * 40} {'2' * 40} refs/heads/main\n")
    + b"0000PACK..."
)


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
async def test_commands_of_a_push_in_pieces_of_any_size(size: int) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(PUSH), size):
            yield PUSH[at : at + size]

    body = pieces()
    found = await read_commands(body)
    assert found.updates == [
        ("0" * 40, "1" * 40, "refs/heads/new"),
        ("1" * 40, "2" * 40, "refs/heads/main"),
    ]
    rest = b"".join([piece async for piece in body])
    assert found.raw + rest == PUSH


@pytest.mark.parametrize("junk", [b"hello world", b"0001", b"-001abc"])
async def test_a_body_that_is_no_push(junk: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield junk

    with pytest.raises(ApiError):
        await read_commands(pieces())
