"""The websocket, frame by frame: authentication, numbering, events, resume and what ends a connection."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.contract.chat.sockets import Listener, listening
from tests.contract.chat.world import World, ok


def _post_of(frame: dict[str, Any]) -> dict[str, Any]:
    post: dict[str, Any] = json.loads(frame["data"]["post"])
    return post


async def _lose(listener: Listener, world: World, user_id: str) -> None:
    """Cut the connection and wait until the server knows."""
    listener.abort()
    await world.until_offline(user_id)


async def test_a_bearer_header_gives_hello_then_numbered_events(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.frame()
        assert (hello["event"], hello["seq"]) == ("hello", 0)
        assert hello["data"]["connection_id"] == hello["broadcast"]["connection_id"]
        assert set(hello["data"]) == {"connection_id", "server_hostname", "server_version"}
        assert hello["broadcast"]["user_id"] == worker.id
        made = [other.post(world.channel["id"], f"m{number}")["id"] for number in range(3)]
        frames = [await listener.frame() for _ in made]
        assert [frame["seq"] for frame in frames] == [1, 2, 3]
        assert [_post_of(frame)["id"] for frame in frames] == made


async def test_posted_has_the_captured_shape_and_mentions_only_for_the_mentioned(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as first, listening(world.chat.url, other.token) as second:
        await first.event("hello")
        await second.event("hello")
        sent = worker.post(world.channel["id"], f"hey @{other.name}", pending_post_id=f"{worker.id}:7")
        own, theirs = await first.event("posted"), await second.event("posted")
    assert own["data"] == {
        "channel_display_name": "Task",
        "channel_name": "task",
        "channel_type": "O",
        "post": own["data"]["post"],
        "sender_name": f"@{worker.name}",
        "set_online": True,
        "team_id": world.team["id"],
    }
    assert _post_of(own) == sent, "own posts are echoed, pending_post_id included"
    assert json.loads(theirs["data"]["mentions"]) == [other.id]
    assert own["broadcast"] == {
        "omit_users": None,
        "user_id": "",
        "channel_id": world.channel["id"],
        "team_id": "",
        "connection_id": "",
        "omit_connection_id": "",
    }


async def test_a_direct_message_opens_a_channel_and_mentions_the_other(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, other.token) as listener:
        await listener.event("hello")
        channel = ok(worker.rest.post("channels/direct", json=[worker.id, other.id]))
        added = await listener.event("direct_added")
        assert added["data"] == {"creator_id": worker.id, "teammate_id": other.id}
        worker.post(channel["id"], "psst")
        posted = await listener.event("posted")
    assert (posted["data"]["channel_type"], posted["data"]["team_id"]) == ("D", "")
    assert posted["data"]["channel_name"] == "__".join(sorted([worker.id, other.id]))
    assert json.loads(posted["data"]["mentions"]) == [other.id]


async def test_edits_deletions_joins_and_new_users_are_told(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        await listener.event("hello")
        post = worker.post(world.channel["id"], "before")
        ok(worker.rest.put(f"posts/{post['id']}/patch", json={"message": "after"}))
        assert _post_of(await listener.event("post_edited"))["message"] == "after"
        ok(worker.rest.delete(f"posts/{post['id']}"))
        deleted = _post_of(await listener.event("post_deleted"))
        assert (deleted["id"], deleted["delete_at"]) == (post["id"], 0), "the post as it was"
        newcomer = world.account()
        assert (await listener.event("new_user"))["data"] == {"user_id": newcomer.id}
        member = {"team_id": world.team["id"], "user_id": newcomer.id}
        ok(world.admin.post(f"teams/{world.team['id']}/members", json=member))
        ok(world.admin.post(f"channels/{world.channel['id']}/members", json={"user_id": newcomer.id}))
        while True:
            posted = await listener.event("posted")
            if _post_of(posted)["type"] == "system_add_to_channel":
                break
        assert posted["data"]["sender_name"] == "System"
        added = await listener.event("user_added")
        assert added["data"] == {"user_id": newcomer.id, "team_id": world.team["id"]}


async def test_events_of_a_direct_channel_reach_its_two_members_only(world: World) -> None:
    worker, other, third = world.worker(), world.worker(), world.worker()
    channel = ok(worker.rest.post("channels/direct", json=[worker.id, other.id]))
    async with listening(world.chat.url, third.token) as listener:
        await listener.event("hello")
        worker.post(channel["id"], "secret")
        assert await listener.until_pong() == []


async def test_the_challenge_answers_hello_then_ok(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url) as listener:
        number = await listener.ask("authentication_challenge", {"token": worker.token})
        hello, reply = await listener.frame(), await listener.frame()
        assert (hello["event"], hello["seq"]) == ("hello", 0)
        assert reply == {"status": "OK", "seq_reply": number}
        await listener.ask("authentication_challenge", {"token": worker.token})
        assert await listener.until_pong() == [], "a second challenge has no answer"


async def test_a_wrong_challenge_is_closed_without_a_frame(world: World) -> None:
    async with listening(world.chat.url) as listener:
        await listener.ask("authentication_challenge", {"token": "z" * 26})
        assert (await listener.closed())[0] == 1006


async def test_a_wrong_header_token_does_not_fail_the_upgrade(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, "z" * 26) as listener:
        number = await listener.ask("ping")
        reply = await listener.frame()
        assert (reply["status"], reply["seq_reply"]) == ("FAIL", number)
        assert reply["error"]["id"] == "api.web_socket_router.not_authenticated.app_error"
        await listener.ask("authentication_challenge", {"token": worker.token})
        assert (await listener.frame())["event"] == "hello"


async def test_an_unauthenticated_connection_is_closed_after_five_seconds(world: World) -> None:
    began = time.monotonic()
    async with listening(world.chat.url) as listener:
        assert (await listener.closed())[0] == 1006
    assert time.monotonic() - began > 4.5


@pytest.mark.parametrize(
    ("origin", "allowed"), [(None, True), ("same", True), ("null", False), ("http://evil.example", False)]
)
async def test_the_origin_must_be_the_server_itself(world: World, origin: str | None, allowed: bool) -> None:
    worker = world.worker()
    headers = {} if origin is None else {"Origin": world.chat.url if origin == "same" else origin}
    status = 101
    try:
        async with listening(world.chat.url, worker.token, headers=headers) as listener:
            await listener.event("hello")
    except InvalidStatus as error:
        status = error.response.status_code
    assert status == 101 if allowed else status in {400, 403}


async def test_a_large_client_message_is_closed_with_1009(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        await listener.event("hello")
        await listener.connection.send(json.dumps({"seq": 1, "action": "ping", "data": {"x": "y" * 8192}}))
        assert (await listener.closed())[0] == 1009


async def test_an_undecodable_message_ends_the_connection(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        await listener.event("hello")
        await listener.connection.send("{no json")
        assert (await listener.closed())[0] == 1006


async def test_an_unknown_action_fails_and_typing_is_taken(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        await listener.event("hello")
        await listener.ask("make_coffee")
        assert (await listener.frame())["error"]["id"] == "api.web_socket_router.bad_action.app_error"
        await listener.ask("user_typing", {"channel_id": world.channel["id"], "parent_id": ""})
        assert (await listener.frame())["status"] == "OK"
        await listener.ask("get_statuses")
        assert (await listener.frame())["data"][worker.id] == "online"


async def test_a_revoked_session_falls_silent_and_its_ping_fails(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        await listener.event("hello")
        ok(world.admin.post("users/tokens/revoke", json={"token_id": worker.token_id}))
        other.post(world.channel["id"], "unheard")
        number = await listener.ask("ping")
        reply = await listener.frame()
        assert (reply["status"], reply["seq_reply"], reply["error"]["status_code"]) == ("FAIL", number, 401)
        await listener.ask("ping")
        assert (await listener.frame())["status"] == "FAIL", "the socket stays open"
    assert worker.rest.get("users/me").status_code == 401


async def test_a_cut_connection_resumes_without_hello_gap_or_repeat(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        first = other.post(world.channel["id"], "seen")["id"]
        assert _post_of(await listener.frame())["id"] == first
        await _lose(listener, world, worker.id)
    missed = [other.post(world.channel["id"], f"missed {number}")["id"] for number in range(5)]
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=2"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        events = await listener.until_pong()
        assert [frame["event"] for frame in events] == ["posted"] * 5
        assert [frame["seq"] for frame in events] == [2, 3, 4, 5, 6]
        assert [_post_of(frame)["id"] for frame in events] == missed


async def test_sent_but_unread_events_are_replayed_from_the_number_asked_for(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        made = [other.post(world.channel["id"], f"m{number}")["id"] for number in range(4)]
        await listener.until_pong()  # the server has sent all of them; pretend that only seq 1 arrived
        await _lose(listener, world, worker.id)
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=2"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        events = await listener.until_pong()
        seen = [(frame["seq"], _post_of(frame)["id"]) for frame in events]
        assert seen == [(2, made[1]), (3, made[2]), (4, made[3])]


async def test_a_gap_too_old_gives_a_new_connection(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        for number in range(140):  # more than the 128 that are kept
            other.post(world.channel["id"], f"m{number}")
        await listener.until_pong()
        await _lose(listener, world, worker.id)
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=3"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        fresh = await listener.frame()
        assert (fresh["event"], fresh["seq"]) == ("hello", 0)
        assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]
        post = other.post(world.channel["id"], "after")
        frame = await listener.frame()
        assert (frame["seq"], _post_of(frame)["id"]) == (1, post["id"])


async def test_more_than_256_missed_events_cannot_be_resumed(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        await _lose(listener, world, worker.id)
    for number in range(257):
        other.post(world.channel["id"], f"m{number}")
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        fresh = await listener.frame()
        assert (fresh["event"], fresh["seq"]) == ("hello", 0)
        assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]
        assert await listener.until_pong() == []


async def test_a_connection_believed_alive_is_not_resumed(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as first:
        hello = await first.event("hello")
        query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
        async with listening(world.chat.url, worker.token, query=query) as second:
            fresh = await second.frame()
            assert fresh["event"] == "hello"
            assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]


async def test_nobody_resumes_the_connection_of_another(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        await _lose(listener, world, worker.id)
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
    async with listening(world.chat.url, other.token, query=query) as listener:
        assert (await listener.frame())["event"] == "hello"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        assert await listener.until_pong() == [], "the owner still can"


async def test_the_challenge_never_resumes(world: World) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        await _lose(listener, world, worker.id)
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=1"
    async with listening(world.chat.url, query=query) as listener:
        await listener.ask("authentication_challenge", {"token": worker.token})
        fresh = await listener.frame()
        assert fresh["event"] == "hello"
        assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]


async def test_the_trap_of_sequence_number_zero(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token) as listener:
        hello = await listener.event("hello")
        other.post(world.channel["id"], "seen")
        await listener.event("posted")
        await _lose(listener, world, worker.id)
    missed = other.post(world.channel["id"], "missed")
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number=0"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        events = await listener.until_pong()
        assert [(frame["event"], frame["seq"]) for frame in events] == [("posted", 0)], "no hello, numbered anew"
        assert _post_of(events[0])["id"] == missed["id"]


@pytest.mark.parametrize("query", ["?connection_id={id}", "?connection_id={id}&sequence_number=two"])
async def test_a_connection_id_needs_a_number(world: World, query: str) -> None:
    worker = world.worker()
    async with listening(world.chat.url, worker.token, query=query.format(id="z" * 26)) as listener:
        assert (await listener.closed())[0] == 1006


async def test_a_reader_that_stalls_is_cut_and_cannot_resume(world: World) -> None:
    worker, other = world.worker(), world.worker()
    async with listening(world.chat.url, worker.token, max_queue=1) as listener:
        hello = await listener.event("hello")
        listener.connection.transport.pause_reading()
        text = "x" * 16_000
        async with asyncio.timeout(60):
            # The sockets' buffers take some megabytes before the 256 queued events count.
            while ok(world.admin.get(f"users/{worker.id}/status"))["status"] == "online":
                await asyncio.to_thread(other.post, world.channel["id"], text)
        listener.connection.transport.resume_reading()
        seen = max([frame.get("seq", 0) async for frame in listener.rest()], default=0)
        assert listener.connection.close_code in {1005, 1006}
    query = f"?connection_id={hello['data']['connection_id']}&sequence_number={seen + 1}"
    async with listening(world.chat.url, worker.token, query=query) as listener:
        fresh = await listener.frame()
        assert fresh["event"] == "hello"
        assert fresh["data"]["connection_id"] != hello["data"]["connection_id"]
