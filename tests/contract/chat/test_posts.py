"""Posts over REST: what is promised, and the traps of catching up."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.chat.world import Worker, World, ok


def _order(world: World, channel_id: str, **query: Any) -> list[str]:
    order: list[str] = ok(world.admin.get(f"channels/{channel_id}/posts", params=query))["order"]
    return order


def _apart(worker: Worker, channel_id: str, message: str) -> str:
    """Write a post that has its millisecond for itself; return its id."""
    post = worker.post(channel_id, message)
    while int(time.time() * 1000) <= post["create_at"]:
        time.sleep(0.0002)
    return str(post["id"])


def test_a_post_has_every_field_of_the_type(world: World) -> None:
    worker = world.worker()
    post = worker.post(world.channel["id"], "hello #world", props={"k": [1, "é"]}, pending_post_id=f"{worker.id}:1")
    assert post["create_at"] == post["update_at"] > 1_600_000_000_000
    assert post["props"]["k"] == [1, "é"]
    expected = {
        "edit_at": 0,
        "delete_at": 0,
        "is_pinned": False,
        "user_id": worker.id,
        "channel_id": world.channel["id"],
        "root_id": "",
        "original_id": "",
        "message": "hello #world",
        "type": "",
        "hashtags": "#world",
        "pending_post_id": f"{worker.id}:1",
        "reply_count": 0,
    }
    assert {name: post[name] for name in expected} == expected
    assert ok(world.admin.get(f"posts/{post['id']}"))["message"] == "hello #world"


def test_pages_are_newest_first_with_60_by_default_and_at_most_200(world: World) -> None:
    worker = world.worker()
    channel = world.new_channel(worker)
    made = [_apart(worker, channel, f"m{number}") for number in range(205)]
    assert _order(world, channel) == made[::-1][:60]
    assert _order(world, channel, per_page=1000) == made[::-1][:200]
    second = _order(world, channel, per_page=200, page=1)
    assert second[:5] == made[::-1][200:]  # then come the join messages


def test_after_is_strict_pages_on_and_shows_live_posts_only(world: World) -> None:
    worker = world.worker()
    channel = world.new_channel(worker)
    posts = [_apart(worker, channel, f"m{number}") for number in range(8)]
    anchor, rest = posts[0], posts[1:]
    ok(worker.rest.delete(f"posts/{rest[2]}"))
    live = [post for post in rest if post != rest[2]]
    assert _order(world, channel, after=anchor, per_page=200) == live[::-1]
    first = _order(world, channel, after=anchor, per_page=4)
    second = _order(world, channel, after=anchor, per_page=4, page=1)
    assert (first, second) == (live[:4][::-1], live[4:][::-1])
    assert _order(world, channel, after=rest[2], per_page=200) == live[2:][::-1], "a soft-deleted anchor works"
    assert _order(world, channel, after="z" * 26) == [], "an unknown anchor answers nothing"
    assert _order(world, channel, before=posts[3], per_page=2) == [posts[2], posts[1]]


def test_after_skips_the_siblings_of_the_anchors_millisecond(world: World) -> None:
    # Admins may give create_at, so two posts of the same millisecond can be made at will.
    at = int(time.time() * 1000)
    channel = world.new_channel()
    first, sibling, later = (
        ok(world.admin.post("posts", json={"channel_id": channel, "message": "m", "create_at": at + offset}))["id"]
        for offset in (0, 0, 1)
    )
    assert _order(world, channel, after=first) == [later]
    assert set(_order(world, channel)[:3]) == {first, sibling, later}


def test_since_is_exclusive_and_shows_edits_deletions_and_former_texts(world: World) -> None:
    worker = world.worker()
    channel = world.new_channel(worker)
    kept = worker.post(channel, "kept")
    doomed = worker.post(channel, "doomed")
    mark = max(kept["update_at"], doomed["update_at"])
    assert _order(world, channel, since=mark) == []
    edited = ok(worker.rest.put(f"posts/{kept['id']}/patch", json={"message": "kept, edited"}))
    assert edited["edit_at"] >= kept["create_at"]
    ok(worker.rest.delete(f"posts/{doomed['id']}"))
    listing = ok(world.admin.get(f"channels/{channel}/posts", params={"since": mark, "per_page": 1}))
    posts = listing["posts"]
    assert posts[doomed["id"]]["message"] == ""
    assert posts[doomed["id"]]["delete_at"] > 0
    former = [post for post in posts.values() if post["original_id"] == kept["id"]]
    assert [post["message"] for post in former] == ["kept"]
    assert posts[kept["id"]]["message"] == "kept, edited"
    assert len(listing["order"]) == 3, "per_page is ignored"


def test_since_stops_at_a_thousand_rows_in_no_useful_order(world: World) -> None:
    channel = world.new_channel()
    start = int(time.time() * 1000) + 1000

    def send(number: int) -> str:
        fields = {"channel_id": channel, "message": f"m{number}", "create_at": start + number}
        return str(ok(world.admin.post("posts", json=fields))["id"])

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(send, range(1100)))
    found = _order(world, channel, since=start - 1)
    assert len(found) == 1000
    assert set(found) < set(made)
    assert found != made[:1000][::-1]
    assert found != made[-1000:][::-1]
    pages = [_order(world, channel, after=made[0], per_page=200, page=page) for page in range(6)]
    assert {post for page in pages for post in page} == set(made[1:]), "after misses none"


def test_the_same_pending_post_id_makes_one_post(world: World) -> None:
    worker = world.worker()
    key = f"{worker.id}:42"
    first = worker.post(world.channel["id"], "once", pending_post_id=key)
    again = worker.rest.post(
        "posts", json={"channel_id": world.channel["id"], "message": "twice", "pending_post_id": key}
    )
    assert again.status_code == 201
    assert (again.json()["id"], again.json()["message"]) == (first["id"], "once")
    assert again.json()["pending_post_id"] == key


def test_a_burst_under_one_key_makes_one_post_and_otherwise_the_pending_error(world: World) -> None:
    worker = world.worker()
    fields = {"channel_id": world.channel["id"], "message": "burst", "pending_post_id": f"{worker.id}:burst"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: worker.rest.post("posts", json=fields), range(16)))
    made = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    refused = {answer.json()["id"] for answer in answers if answer.status_code != 201}
    assert len(made) == 1
    assert refused <= {"api.post.deduplicate_create_post.pending"}
    assert {answer.status_code for answer in answers} <= {201, 500}


def test_a_refused_post_frees_its_key(world: World) -> None:
    worker = world.worker()
    key = f"{worker.id}:again"
    fields = {"channel_id": world.channel["id"], "message": "reply", "root_id": "z" * 26, "pending_post_id": key}
    refused = worker.rest.post("posts", json=fields)
    assert (refused.status_code, refused.json()["id"]) == (400, "api.post.create_post.root_id.app_error")
    assert worker.post(world.channel["id"], "now", pending_post_id=key)["message"] == "now"


@pytest.mark.parametrize(("length", "status"), [(16_383, 201), (16_384, 400)])
def test_a_message_is_limited_in_runes_not_bytes(world: World, length: int, status: int) -> None:
    answer = world.admin.post("posts", json={"channel_id": world.channel["id"], "message": "🦊" * length})
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["id"] == "model.post.is_valid.message_length.app_error"


def test_a_reply_belongs_to_its_thread_and_moves_the_root(world: World) -> None:
    worker, other = world.worker(), world.worker()
    root = worker.post(world.channel["id"], "root")
    reply = other.post(world.channel["id"], "reply", root_id=root["id"])
    assert reply["reply_count"] == 1
    thread = ok(worker.rest.get(f"posts/{reply['id']}/thread"))
    assert set(thread["order"]) == {root["id"], reply["id"]}
    assert thread["posts"][root["id"]]["reply_count"] == 1
    assert ok(worker.rest.get(f"posts/{root['id']}"))["update_at"] >= reply["create_at"]
    ok(worker.rest.delete(f"posts/{root['id']}"))
    assert worker.rest.get(f"posts/{reply['id']}").status_code == 404, "a root takes its thread with it"


def test_the_listing_brings_the_rest_of_a_thread_in_posts_but_not_in_order(world: World) -> None:
    worker = world.worker()
    channel = world.new_channel(worker)
    root = worker.post(channel, "root")
    for number in range(3):
        worker.post(channel, f"between {number}")
    reply = worker.post(channel, "reply", root_id=root["id"])
    listing = ok(worker.rest.get(f"channels/{channel}/posts", params={"per_page": 1}))
    assert listing["order"] == [reply["id"]]
    assert set(listing["posts"]) == {root["id"], reply["id"]}


def test_only_the_author_or_an_admin_changes_a_post(world: World) -> None:
    worker, other = world.worker(), world.worker()
    post = worker.post(world.channel["id"], "mine")
    assert other.rest.put(f"posts/{post['id']}/patch", json={"message": "yours"}).status_code == 403
    assert other.rest.delete(f"posts/{post['id']}").status_code == 403
    assert ok(world.admin.put(f"posts/{post['id']}/patch", json={"message": "admin's"}))["message"] == "admin's"
    ok(world.admin.delete(f"posts/{post['id']}"))
    missing = worker.rest.get(f"posts/{post['id']}")
    assert (missing.status_code, missing.json()["id"]) == (404, "app.post.get.app_error")


def test_pins_and_reactions(world: World) -> None:
    worker = world.worker()
    post = worker.post(world.channel["id"], "good")
    ok(worker.rest.post(f"posts/{post['id']}/pin"))
    assert ok(worker.rest.get(f"channels/{world.channel['id']}/pinned"))["order"] == [post["id"]]
    reaction = {"user_id": worker.id, "post_id": post["id"], "emoji_name": "+1"}
    ok(worker.rest.post("reactions", json=reaction))
    assert [row["emoji_name"] for row in ok(worker.rest.get(f"posts/{post['id']}/reactions"))] == ["+1"]
    assert ok(worker.rest.get(f"posts/{post['id']}"))["has_reactions"] is True
    ok(worker.rest.delete(f"users/me/posts/{post['id']}/reactions/+1"))
    assert ok(worker.rest.get(f"posts/{post['id']}/reactions")) is None


def test_unread_counts_follow_mentions_and_views(world: World) -> None:
    worker, other = world.worker(), world.worker()
    channel = world.new_channel(worker, other)
    worker.post(channel, "first")
    worker.post(channel, f"look @{other.name}: and @{other.name}x")
    unread = ok(other.rest.get(f"users/me/channels/{channel}/unread"))
    assert (unread["msg_count"], unread["mention_count"]) == (2, 1)
    assert ok(worker.rest.get(f"users/me/channels/{channel}/unread"))["msg_count"] == 0, "writing is reading"
    around = ok(other.rest.get(f"users/me/channels/{channel}/posts/unread", params={"limit_after": 10}))
    assert len(around["order"]) >= 2
    ok(other.rest.post("channels/members/me/view", json={"channel_id": channel}))
    assert ok(other.rest.get(f"users/me/channels/{channel}/unread"))["mention_count"] == 0


def test_posting_needs_membership(world: World) -> None:
    outsider = world.account()
    refused = outsider.rest.post("posts", json={"channel_id": world.channel["id"], "message": "hi"})
    assert (refused.status_code, refused.json()["id"]) == (403, "api.context.permissions.app_error")
    assert outsider.rest.get(f"channels/{world.channel['id']}/posts").status_code == 403


def test_collapsed_threads_leave_replies_out(world: World) -> None:
    worker = world.worker()
    channel = world.new_channel(worker)
    root = _apart(worker, channel, "root")
    reply = worker.post(channel, "reply", root_id=root)["id"]
    whole = ok(worker.rest.get(f"channels/{channel}/posts"))["order"]
    assert reply in whole
    collapsed = ok(worker.rest.get(f"channels/{channel}/posts", params={"collapsedThreads": "true"}))
    assert collapsed["order"] == [post for post in whole if post != reply]
    assert reply not in collapsed["posts"]


def test_search_finds_words_in_own_channels_only(world: World) -> None:
    worker, other = world.worker(), world.worker()
    private = world.new_channel(other, kind="P")
    found = worker.post(world.channel["id"], f"needle{world.tag} in the hay")["id"]
    hidden = other.post(private, f"needle{world.tag} elsewhere")["id"]
    path, terms = f"teams/{world.team['id']}/posts/search", {"terms": f"needle{world.tag}", "is_or_search": False}
    assert ok(worker.rest.post(path, json=terms))["order"] == [found]
    assert set(ok(other.rest.post(path, json=terms))["order"]) == {found, hidden}
