"""The chat's answers, and how far a channel counts as read."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agensh.clients.mattermost import Post
from agensh.clients.mattermost_core import describe
from agensh.clients.mattermost_models import ServerLimits
from agensh.clients.mattermost_ws import read_posted
from router.listeners.mattermost import REMEMBERED, _Place
from router.posts import OVERLAP_MS, SETTLED_MS


def post(at: int, post_id: str | None = None) -> Post:
    return Post.of({"id": post_id or f"p{at}", "create_at": at, "channel_id": "c", "user_id": "u"})


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (
            httpx.Response(400, json={"id": "api.user.x.app_error", "message": "No.", "status_code": 400}),
            "No. (api.user.x.app_error)",
        ),
        (httpx.Response(404, json={"message": "Gone"}), "Gone"),
        (httpx.Response(429, text="limit exceeded"), "limit exceeded"),
        (httpx.Response(502), "Bad Gateway"),
        (httpx.Response(500, json=[1]), "[1]"),
    ],
)
def test_errors_keep_the_chats_words(response: httpx.Response, words: str) -> None:
    assert describe(response) == words


def test_a_real_posted_event_is_read() -> None:
    inner = {
        "id": "ghkm74cqzbnjxr5dx638k73xqa",
        "create_at": 1576937676623,
        "user_id": "kh9859j8kir15dmxonsm8sxq1w",
        "channel_id": "amtak96j3br5iyokgunmf188jc",
        "root_id": "",
        "message": "test",
        "type": "",
        "props": {"agensh_key": "k"},
        "pending_post_id": "kh9859j8kir15dmxonsm8sxq1w:1576937676569",
        "metadata": {},
    }
    data = {"channel_name": "town-square", "channel_type": "O", "post": json.dumps(inner), "sender_name": "@admin"}
    signal = read_posted(data)
    assert signal is not None
    assert signal.post is not None
    assert (signal.kind, signal.channel_type, signal.channel_name) == ("posted", "O", "town-square")
    assert (signal.post.message, signal.post.create_at, signal.post.key) == ("test", 1576937676623, "k")


@pytest.mark.parametrize("data", [{}, {"post": "{"}, {"post": "{}"}, {"post": 7}])
def test_a_posted_event_without_a_post_is_passed_over(data: dict[str, object]) -> None:
    assert read_posted(data) is None


def test_limits_that_are_not_told_are_zero() -> None:
    assert ServerLimits.of({}) == ServerLimits(0, 0, 0)
    assert ServerLimits.of({"maxUsersHardLimit": 250, "postHistoryLimit": 10_000}).max_users == 250


def test_the_anchor_stays_some_seconds_behind() -> None:
    place = _Place("c", False, "task")
    recent, anchor = place.advanced([post(1000), post(2000)], 0.0)
    assert anchor == "", "nothing is old enough"
    place.recent, place.anchor = recent, anchor
    _, anchor = place.advanced([post(2000 + OVERLAP_MS)], 0.0)
    assert anchor == "p2000"


def test_the_newest_post_of_a_quiet_channel_becomes_the_anchor_once_it_is_settled() -> None:
    place = _Place("c", False, "task")
    posts = [post(1000), post(2000)]
    assert place.advanced(posts, (1999 + SETTLED_MS) / 1000)[1] == "p1000"
    assert place.advanced(posts, (2000 + SETTLED_MS) / 1000)[1] == "p2000"


def test_a_late_post_does_not_move_the_anchor_back() -> None:
    place = _Place("c", False, "task")
    place.recent, place.anchor = place.advanced([post(1000), post(50_000)], 0.0)
    assert place.anchor == "p1000"
    place.recent, place.anchor = place.advanced([post(45_000)], 0.0)
    assert place.anchor == "p1000"
    place.recent, place.anchor = place.advanced([post(60_000)], 0.0)
    assert place.anchor == "p50000"


@given(st.lists(st.lists(st.integers(0, 100_000), max_size=20), max_size=20))
def test_the_anchor_is_a_committed_post_with_room_before_the_newest(batches: list[list[int]]) -> None:
    place = _Place("c", False, "task")
    committed: set[int] = set()
    for batch in batches:
        place.recent, place.anchor = place.advanced([post(at) for at in batch], 0.0)
        committed.update(batch)
        assert len(place.recent) <= REMEMBERED
        if place.anchor:
            at = int(place.anchor.removeprefix("p"))
            assert at in committed
            assert at <= max(committed) - OVERLAP_MS
