"""Accounts, sessions, tokens, teams and channels over REST, with the refusals that provisioning meets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from agensh.embedded.chat.app import create_app
from tests.contract.chat.world import World, client, make_world, ok
from tests.support.chat_server import running_chat


def _user(world: World, name: str, **more: Any) -> httpx.Response:
    fields = {"username": name, "email": f"{name}@example.com", "password": "long-enough-1"} | more
    return world.admin.post("users", json=fields)


def _refused(response: httpx.Response) -> tuple[int, str]:
    """Return status and id of an error, having checked its shape."""
    error = response.json()
    assert set(error) == {"id", "message", "detailed_error", "request_id", "status_code"}
    assert error["status_code"] == response.status_code
    assert len(error["request_id"]) == 26
    return response.status_code, error["id"]


def test_login_gives_the_token_header_and_a_session_that_ends_with_logout(world: World) -> None:
    name = f"{world.tag}-ann"
    user = ok(_user(world, name))
    assert user["roles"] == "system_user"
    with client(world.chat.url) as rest:
        login = rest.post("users/login", json={"login_id": name, "password": "long-enough-1"})
        assert login.json()["id"] == user["id"]
        assert "password" not in login.json()
        with client(world.chat.url, login.headers["Token"]) as own:
            assert ok(own.get("users/me"))["notify_props"]["push_status"] == "online"
            assert ok(own.post("users/logout")) == {"status": "OK"}
            assert _refused(own.get("users/me")) == (401, "api.context.session_expired.app_error")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Token", "token"])
def test_both_schemes_of_the_header_are_taken(world: World, scheme: str) -> None:
    worker = world.account()
    headers = {"Authorization": f"{scheme} {worker.token}"}
    assert httpx.get(f"{world.chat.url}/api/v4/users/me", headers=headers).json()["id"] == worker.id


def test_a_kept_cookie_beats_the_header_and_demands_csrf(world: World) -> None:
    name = f"{world.tag}-cook"
    ok(_user(world, name))
    worker = world.worker()
    fields = {"channel_id": world.channel["id"], "message": "hi"}
    with httpx.Client(base_url=f"{world.chat.url}/api/v4/") as rest:
        # The real server sends the cookies of a login to a browser's client only.
        login = rest.post(
            "users/login",
            json={"login_id": name, "password": "long-enough-1"},
            headers={"X-Requested-With": "XMLHttpRequest"},
        )
        assert {"MMAUTHTOKEN", "MMUSERID", "MMCSRF"} <= set(login.cookies)
        rest.headers["Authorization"] = f"Bearer {worker.token}"
        assert ok(rest.get("users/me"))["username"] == name, "the cookie wins"
        assert _refused(rest.post("posts", json=fields)) == (401, "api.context.session_expired.app_error")
        csrf = {"X-CSRF-Token": login.cookies["MMCSRF"]}
        assert rest.post("posts", json=fields, headers=csrf).status_code == 403, "known, but no member"
        rest.cookies.clear()
        assert rest.post("posts", json=fields).status_code == 201


def test_bots_have_tokens_but_no_password_and_make_no_bots(world: World) -> None:
    worker = world.account()
    me = ok(worker.rest.get("users/me"))
    assert (me["is_bot"], me["email"], me["roles"]) == (True, f"{worker.name}@localhost", "system_user")
    bot = ok(world.admin.get(f"bots/{worker.id}"))
    assert (bot["owner_id"], bot["username"]) == (world.admin_id, worker.name)
    with client(world.chat.url) as rest:
        login = rest.post("users/login", json={"login_id": worker.name, "password": "anything-1"})
    assert login.status_code == 401
    assert _refused(worker.rest.post("bots", json={"username": "x-bot"}))[0] == 403
    welcome = ok(world.admin.get("users/me/channels"))
    names = {channel["name"] for channel in welcome}
    assert "__".join(sorted([worker.id, world.admin_id])) in names, "a new bot writes to its owner"


def test_ordinary_users_get_no_access_token_by_default(world: World) -> None:
    user = ok(_user(world, f"{world.tag}-pat"))
    refused = world.admin.post(f"users/{user['id']}/tokens", json={"description": "x"})
    assert _refused(refused) == (501, "app.user_access_token.disabled")


def test_tokens_are_listed_without_secret_disabled_enabled_and_revoked(world: World) -> None:
    worker = world.account()
    (listed,) = ok(world.admin.get(f"users/{worker.id}/tokens"))
    assert listed == {"id": worker.token_id, "user_id": worker.id, "description": "test", "is_active": True}
    ok(world.admin.post("users/tokens/disable", json={"token_id": worker.token_id}))
    assert worker.rest.get("users/me").status_code == 401
    ok(world.admin.post("users/tokens/enable", json={"token_id": worker.token_id}))
    assert worker.rest.get("users/me").status_code == 200
    other = world.account()
    assert other.rest.post("users/tokens/revoke", json={"token_id": worker.token_id}).status_code == 403
    ok(world.admin.post("users/tokens/revoke", json={"token_id": worker.token_id}))
    assert worker.rest.get("users/me").status_code == 401


def test_a_disabled_bot_is_locked_out_until_it_is_enabled(world: World) -> None:
    worker = world.account()
    assert ok(world.admin.post(f"bots/{worker.id}/disable"))["delete_at"] > 0
    assert worker.rest.get("users/me").status_code == 401
    assert worker.id not in {bot["user_id"] for bot in ok(world.admin.get("bots", params={"per_page": 200}))}
    assert ok(world.admin.post(f"bots/{worker.id}/enable"))["delete_at"] == 0
    assert worker.rest.get("users/me").status_code == 200


@pytest.mark.parametrize("name", ["", "Has Space", "ünicode", "9lives", "a" * 65, "all"])
def test_a_username_must_be_allowed(world: World, name: str) -> None:
    assert _user(world, name, email=f"{world.tag}@example.com").status_code == 400


def test_names_and_addresses_are_unique(world: World) -> None:
    name = f"{world.tag}-one"
    ok(_user(world, name))
    again = _user(world, name.upper(), email=f"{world.tag}-other@example.com")
    assert _refused(again) == (400, "app.user.save.username_exists.app_error")
    assert _refused(_user(world, f"{name}2", email=f"{name}@example.com")) == (
        400,
        "app.user.save.email_exists.app_error",
    )
    bot = world.admin.post("bots", json={"username": name})
    assert bot.status_code == 400


def test_nobody_signs_up_by_themselves(world: World) -> None:
    fields = {"username": "stranger", "email": "s@example.com", "password": "long-enough-1"}
    with client(world.chat.url) as rest:
        assert rest.post("users", json=fields).status_code in {403, 501}
    assert world.account().rest.post("users", json=fields).status_code in {403, 501}


def test_users_are_found_by_many_ways(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    ids = [worker.id for worker in workers]
    rest = workers[0].rest
    assert ok(rest.get(f"users/username/{workers[1].name}"))["id"] == ids[1]
    assert [user["id"] for user in ok(rest.post("users/ids", json=ids))] == ids
    names = [worker.name for worker in workers]
    assert {user["username"] for user in ok(rest.post("users/usernames", json=names))} == set(names)
    in_channel = ok(rest.get("users", params={"in_channel": world.channel["id"], "per_page": 200}))
    assert {user["id"] for user in in_channel} == {*ids, world.admin_id}
    pages = [
        ok(rest.get("users", params={"in_team": world.team["id"], "per_page": 2, "page": page})) for page in range(3)
    ]
    assert [len(page) for page in pages] == [2, 2, 0]
    found = ok(rest.get("users/autocomplete", params={"name": world.tag, "in_team": world.team["id"]}))
    assert {user["id"] for user in found["users"]} == set(ids)
    assert [user["id"] for user in ok(rest.post("users/search", json={"term": names[2]}))] == [ids[2]]
    missing = rest.get("users/username/nobody-here")
    assert _refused(missing)[0] == 404


def test_members_are_added_in_batches_of_256(world: World) -> None:
    workers = [world.account() for _ in range(3)]
    rows = [{"team_id": world.team["id"], "user_id": worker.id} for worker in workers]
    path = f"teams/{world.team['id']}/members/batch"
    assert len(ok(world.admin.post(path, json=rows))) == 3
    assert len(ok(world.admin.post(path, json=rows))) == 3, "again is fine"
    assert world.admin.post(path, json=rows * 86).status_code == 400
    graceful = ok(world.admin.post(path, json=[rows[0] | {"user_id": "z" * 26}], params={"graceful": True}))
    assert graceful[0]["member"] is None
    assert graceful[0]["error"]["status_code"] == 404
    ids = [worker.id for worker in workers]
    added = ok(world.admin.post(f"channels/{world.channel['id']}/members", json={"user_ids": ids}))
    assert {member["user_id"] for member in added} == set(ids)
    assert ok(world.admin.get(f"channels/{world.channel['id']}/stats"))["member_count"] == 4
    outsider = world.account()
    refused = world.admin.post(f"channels/{world.channel['id']}/members", json={"user_id": outsider.id})
    assert refused.status_code in {403, 404}, "a channel takes members of its team only"


def test_a_member_of_the_channel_may_add_others(world: World) -> None:
    worker, other = world.worker(), world.worker()
    channel = world.new_channel(worker, kind="P")
    assert other.rest.get(f"channels/{channel}").status_code == 403
    ok(worker.rest.post(f"channels/{channel}/members", json={"user_id": other.id}))
    assert ok(other.rest.get(f"channels/{channel}"))["type"] == "P"
    ok(worker.rest.delete(f"channels/{channel}/members/{worker.id}"))
    assert worker.rest.get(f"channels/{channel}").status_code == 403


def test_each_join_makes_a_system_post(world: World) -> None:
    worker = world.worker()
    posts = ok(worker.rest.get(f"channels/{world.channel['id']}/posts"))["posts"].values()
    (join,) = [post for post in posts if post["type"] == "system_add_to_channel"]
    assert join["props"]["addedUserId"] == worker.id
    town = ok(worker.rest.get(f"teams/{world.team['id']}/channels/name/town-square"))
    kinds = {post["type"] for post in ok(worker.rest.get(f"channels/{town['id']}/posts"))["posts"].values()}
    assert "system_add_to_team" in kinds
    assert ok(worker.rest.get(f"channels/{world.channel['id']}"))["total_msg_count"] == 0, "they are not counted"


def test_a_direct_channel_is_made_once_and_seen_by_two(world: World) -> None:
    worker, other, third = world.worker(), world.worker(), world.worker()
    answers = [worker.rest.post("channels/direct", json=pair) for pair in ([worker.id, other.id],) * 2]
    answers.append(other.rest.post("channels/direct", json=[other.id, worker.id]))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    channel = answers[0].json()
    assert channel["name"] == "__".join(sorted([worker.id, other.id]))
    assert (channel["type"], channel["team_id"]) == ("D", "")
    worker.post(channel["id"], "between us")
    for path in ("", "/posts", "/members", "/stats"):
        assert _refused(third.rest.get(f"channels/{channel['id']}{path}"))[0] == 403
    post = third.rest.post("posts", json={"channel_id": channel["id"], "message": "me too"})
    assert post.status_code == 403
    assert third.rest.post("channels/direct", json=[worker.id, other.id]).status_code == 403
    assert channel["id"] in {row["id"] for row in ok(other.rest.get("users/me/channels"))}
    team_channels = ok(other.rest.get(f"users/me/teams/{world.team['id']}/channels"))
    assert channel["id"] in {row["id"] for row in team_channels}
    assert channel["id"] not in {row["id"] for row in ok(third.rest.get("users/me/channels"))}


def test_a_group_channel_takes_three_to_eight(world: World) -> None:
    workers = [world.worker() for _ in range(3)]
    ids = [worker.id for worker in workers]
    group = ok(workers[0].rest.post("channels/group", json=ids))
    assert group["type"] == "G"
    assert ok(workers[1].rest.post("channels/group", json=ids[::-1]))["id"] == group["id"]
    assert workers[0].rest.post("channels/group", json=ids[:2]).status_code == 400


@pytest.mark.parametrize(
    ("path", "status", "error_id"),
    [
        ("teams/name/no-such-team", 404, "app.team.get_by_name.missing.app_error"),
        ("teams/zzzzzzzzzzzzzzzzzzzzzzzzzz", 404, "app.team.get.find.app_error"),
        ("channels/zzzzzzzzzzzzzzzzzzzzzzzzzz", 404, "app.channel.get.existing.app_error"),
        ("users/zzzzzzzzzzzzzzzzzzzzzzzzzz", 404, "app.user.missing_account.const"),
        ("no/such/page", 404, "api.context.404.app_error"),
    ],
)
def test_what_is_not_there_is_404(world: World, path: str, status: int, error_id: str) -> None:
    assert _refused(world.admin.get(path)) == (status, error_id)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_a_broken_body_is_400(world: World, body: bytes) -> None:
    assert _refused(world.admin.post("posts", content=body))[0] == 400


def test_names_are_taken_once(world: World) -> None:
    team = world.admin.post("teams", json={"name": world.tag, "display_name": "x", "type": "O"})
    assert _refused(team) == (400, "app.team.save.existing.app_error")
    fields = {"team_id": world.team["id"], "name": "task", "display_name": "x", "type": "O"}
    channel = world.admin.post("channels", json=fields)
    assert _refused(channel) == (400, "store.sql_channel.save_channel.exists.app_error")
    assert ok(world.admin.get(f"teams/name/{world.tag}"))["id"] == world.team["id"]
    by_name = ok(world.admin.get(f"teams/name/{world.tag}/channels/name/task"))
    assert by_name["id"] == world.channel["id"]


def test_the_limits_count_people_not_bots(world: World) -> None:
    before = ok(world.admin.get("limits/server"))
    assert before["maxUsersHardLimit"] == 250
    world.account()
    assert ok(world.admin.get("limits/server"))["activeUserCount"] == before["activeUserCount"]
    ok(_user(world, f"{world.tag}-person"))
    assert ok(world.admin.get("limits/server"))["activeUserCount"] == before["activeUserCount"] + 1
    config = ok(world.admin.get("config/client", params={"format": "old"}))
    assert config["Version"].startswith("11.")


def test_preferences_are_kept(world: World) -> None:
    worker = world.account()
    row = {"user_id": worker.id, "category": "display_settings", "name": "x", "value": "1"}
    ok(worker.rest.put("users/me/preferences", json=[row]))
    assert row in ok(worker.rest.get("users/me/preferences"))
    ok(worker.rest.post("users/me/preferences/delete", json=[row]))
    assert row not in ok(worker.rest.get("users/me/preferences"))


def test_the_first_account_of_a_fresh_server_is_its_admin(tmp_path: Path) -> None:
    fields = {"username": "first", "email": "f@example.com", "password": "long-enough-1"}
    with TestClient(create_app(tmp_path)) as rest:
        first = rest.post("/api/v4/users", json=fields)
        assert first.json()["roles"] == "system_user system_admin"
        second = rest.post("/api/v4/users", json=fields | {"username": "second", "email": "s@example.com"})
        assert second.status_code == 403


def test_a_server_with_small_limits_refuses_more(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_users_per_team": 2, "users_hard_limit": 2, "enable_bot_account_creation": True}
    with running_chat(tmp_path, **limits) as chat, make_world(chat) as world:
        first, second = world.account(), world.account()
        path = f"teams/{world.team['id']}/members"
        ok(world.admin.post(path, json={"team_id": world.team["id"], "user_id": first.id}))
        refused = world.admin.post(path, json={"team_id": world.team["id"], "user_id": second.id})
        assert _refused(refused) == (400, "app.team.join_user_to_team.max_accounts.app_error")
        ok(_user(world, "person"))
        assert _refused(_user(world, "another")) == (400, "api.user.create_user.user_limits.exceeded")
        assert world.account().id, "bots are not limited"


def test_stock_settings_make_no_bots(tmp_path: Path) -> None:
    with running_chat(tmp_path, enable_bot_account_creation=False) as chat, make_world(chat) as world:
        assert _refused(world.admin.post("bots", json={"username": "bot"})) == (
            403,
            "api.bot.create_disabled",
        )


def test_a_rate_limit_answers_429_in_plain_text(tmp_path: Path) -> None:
    with (
        running_chat(tmp_path, rate_limit=True, rate_limit_per_second=1, rate_limit_burst=20) as chat,
        client(chat.url) as rest,
    ):
        answers = [rest.get("system/ping") for _ in range(40)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[0].text.strip() == "limit exceeded"
        assert refused[0].headers["content-type"].startswith("text/plain")
        assert int(refused[0].headers["X-RateLimit-Reset"]) >= 1
        assert int(answers[0].headers["X-RateLimit-Remaining"]) > 0


def test_simultaneous_requests_make_one_channel_and_one_join(world: World) -> None:
    worker, other = world.worker(), world.worker()
    newcomer = world.account()
    ok(
        world.admin.post(
            f"teams/{world.team['id']}/members", json={"team_id": world.team["id"], "user_id": newcomer.id}
        )
    )

    def direct(_: int) -> httpx.Response:
        return worker.rest.post("channels/direct", json=[worker.id, other.id])

    def join(_: int) -> httpx.Response:
        return world.admin.post(f"channels/{world.channel['id']}/members", json={"user_id": newcomer.id})

    with ThreadPoolExecutor(16) as pool:
        channels = list(pool.map(direct, range(16)))
        joins = list(pool.map(join, range(16)))
    assert {answer.status_code for answer in channels + joins} == {201}
    assert len({answer.json()["id"] for answer in channels}) == 1
    posts = ok(worker.rest.get(f"channels/{world.channel['id']}/posts"))["posts"].values()
    told = [post for post in posts if post["props"].get("addedUserId") == newcomer.id]
    assert len(told) == 1


def test_bots_are_disabled_with_their_owner(world: World) -> None:
    name = f"{world.tag}-boss"
    boss = ok(_user(world, name))
    ok(world.admin.put(f"users/{boss['id']}/roles", json={"roles": "system_user system_admin"}))
    with client(world.chat.url) as rest:
        token = rest.post("users/login", json={"login_id": name, "password": "long-enough-1"}).headers["Token"]
    with client(world.chat.url, token) as own:
        bot = ok(own.post("bots", json={"username": f"{name}-bot"}))
        secret = ok(own.post(f"users/{bot['user_id']}/tokens", json={"description": "x"}))["token"]
        with client(world.chat.url, secret) as rest:
            assert ok(rest.get("users/me"))["id"] == bot["user_id"]
            ok(world.admin.delete(f"users/{boss['id']}"))
            assert rest.get("users/me").status_code == 401
        assert own.get("users/me").status_code == 401
    assert ok(world.admin.get(f"users/{boss['id']}"))["delete_at"] > 0
