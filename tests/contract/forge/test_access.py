"""Who gets in, what is refused, and how a refusal looks."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest

from tests.contract.forge.world import PASSWORD, World, run_git

embedded_only = pytest.mark.skipif("AGENSH_GITEA_URL" in os.environ, reason="the embedded forge is stricter here")


@embedded_only
@pytest.mark.parametrize(
    "path",
    ["/user", "/users/search", "/repos/{at}", "/repos/{at}/issues", "/notifications", "/admin/users", "/user/repos"],
)
def test_everything_needs_a_caller(world: World, path: str) -> None:
    url = world.forge.api + path.replace("/repos/{at}", world.at)
    for headers in (
        {},
        {"Authorization": "token nonsense"},
        {"Authorization": "Basic %%%"},
        {"Authorization": "Odd x"},
    ):
        answer = httpx.get(url, headers=headers)
        assert answer.status_code == 401, headers
        assert set(answer.json()) == {"message", "url"}


def test_ways_to_say_who_one_is(world: World) -> None:
    ann, url = world.ann, f"{world.forge.api}/user"
    for headers in ({"Authorization": f"token {ann.token}"}, {"Authorization": f"Bearer {ann.token}"}):
        assert httpx.get(url, headers=headers).json()["login"] == ann.name
    for auth in ((ann.name, PASSWORD), (ann.name, ann.token), (ann.token, "x-oauth-basic"), (ann.token, "")):
        assert httpx.get(url, auth=auth).json()["login"] == ann.name, auth
    assert httpx.get(url, auth=(ann.name, "wrong-password")).status_code == 401


def test_must_change_password_is_true_unless_said_otherwise(world: World) -> None:
    name = f"dan{world.tag}"
    body = {"username": name, "email": f"{name}@example.org", "password": PASSWORD}
    assert world.admin_http.post("/admin/users", json=body).status_code == 201
    answer = httpx.get(f"{world.forge.api}/user", auth=(name, PASSWORD))
    assert answer.status_code == 403
    assert "change your password" in answer.json()["message"]
    with httpx.Client(base_url=world.forge.url) as client:
        client.post("/user/login", data={"user_name": name, "password": PASSWORD})
        if "AGENSH_GITEA_URL" not in os.environ:
            assert "unauthorized" in client.get("/user/events").text
    change = {"must_change_password": False, "login_name": name, "source_id": 0}
    assert world.admin_http.patch(f"/admin/users/{name}", json=change).status_code == 200
    assert httpx.get(f"{world.forge.api}/user", auth=(name, PASSWORD)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"username": "{ann}"}, 422),
        ({"username": "{ANN}"}, 422),
        ({"email": "{ann}@example.org"}, 422),
        ({"username": "no spaces"}, 422),
        ({"username": "../up"}, 422),
        ({"username": "user"}, 422),
        ({"email": "nowhere"}, 422),
        ({"password": "short"}, 400),
        ({"username": None}, 422),
    ],
)
def test_accounts_that_are_refused(world: World, fields: dict[str, Any], status: int) -> None:
    name = world.ann.name
    filled = {
        k: v.replace("{ann}", name).replace("{ANN}", name.upper()) if isinstance(v, str) else v
        for k, v in fields.items()
    }
    fresh = f"new{world.tag}"
    body = {"username": fresh, "email": f"{fresh}@example.org", "password": PASSWORD, **filled}
    answer = world.admin_http.post("/admin/users", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_tokens_are_minted_with_a_password_by_self_or_admin(world: World) -> None:
    ann, ben = world.ann, world.ben
    body = {"name": "more", "scopes": ["read:repository"]}
    assert ann.http.post(f"/users/{ann.name}/tokens", json=body).status_code == 401  # a token in the header
    with httpx.Client(base_url=world.forge.api, auth=(ann.name, PASSWORD)) as http:
        assert http.post(f"/users/{ben.name}/tokens", json=body).status_code == 403
        first = http.post(f"/users/{ann.name}/tokens", json=body)
        assert first.status_code == 201
        assert http.post(f"/users/{ann.name}/tokens", json=body).status_code == 400  # the name is taken
        assert http.post(f"/users/{ann.name}/tokens", json={"name": "x", "scopes": []}).status_code == 400
        assert http.post(f"/users/{ann.name}/tokens", json={"name": "x", "scopes": ["odd"]}).status_code == 400
    narrow = {"Authorization": f"token {first.json()['sha1']}"}
    assert httpx.get(f"{world.forge.api}{world.at}", headers=narrow).status_code == 200
    for method, path in (("POST", f"{world.at}/issues"), ("GET", "/notifications"), ("POST", f"{world.at}/branches")):
        refused = httpx.request(method, world.forge.api + path, headers=narrow, json={"title": "x"})
        assert refused.status_code == 403, path
        assert "required scope" in refused.json()["message"]


def test_private_repositories_do_not_exist_for_others(world: World) -> None:
    made = world.owner.http.post("/user/repos", json={"name": "secret", "private": True, "auto_init": True})
    assert made.status_code == 201
    url = f"/repos/{world.owner.name}/secret"
    assert world.ann.http.get(url).status_code == 404
    host = world.forge.url.removeprefix("http://")
    address = f"http://{world.ann.name}:{world.ann.token}@{host}/{world.owner.name}/secret.git"
    assert run_git(world.folder, "ls-remote", address, check=False).returncode != 0
    grant = world.owner.http.put(f"{url}/collaborators/{world.ann.name}", json={"permission": "read"})
    assert grant.status_code == 204
    assert world.ann.http.get(url).json()["permissions"] == {"admin": False, "push": False, "pull": True}
    assert run_git(world.folder, "ls-remote", address).stdout
    clone = world.folder / "secret"
    run_git(world.folder, "clone", "-q", address, str(clone))
    run_git(clone, "-c", "user.name=x", "-c", "user.email=x@x.org", "commit", "-q", "--allow-empty", "-m", "x")
    refused = run_git(clone, "push", "origin", "HEAD:work", check=False)
    assert refused.returncode != 0
    assert "403" in refused.stderr
    assert world.ann.http.delete(url).status_code == 403
    assert world.ann.http.get(f"{url}/collaborators/{world.ann.name}").status_code == 204
    assert world.owner.http.delete(f"{url}/collaborators/{world.ann.name}").status_code == 204
    assert world.ann.http.get(url).status_code == 404


def test_git_takes_password_and_token_and_nothing_else(world: World) -> None:
    host, at = world.forge.url.removeprefix("http://"), f"{world.owner.name}/{world.name}.git"
    for login in (f"{world.ann.name}:{PASSWORD}", f"{world.ann.name}:{world.ann.token}", f"{world.ann.token}:x"):
        assert run_git(world.folder, "ls-remote", f"http://{login}@{host}/{at}", check=False).stdout, login
    wrong = run_git(world.folder, "ls-remote", f"http://{world.ann.name}:wrong@{host}/{at}", check=False)
    assert wrong.returncode != 0


def test_pages_are_capped_counted_and_linked(world: World) -> None:
    for i in range(55):
        assert world.ann.http.post(f"{world.at}/issues", json={"title": f"Issue {i}"}).status_code == 201
    first = world.ann.http.get(f"{world.at}/issues", params={"limit": 100})
    assert len(first.json()) == 50
    assert first.headers["x-total-count"] == "55"
    assert [i["number"] for i in first.json()][:2] == [55, 54]
    follow = first.links["next"]["url"]
    assert len(world.ann.http.get(follow).json()) == 5
    assert len(world.ann.http.get(f"{world.at}/issues").json()) == 30
    assert world.ann.http.get(f"{world.at}/issues", params={"page": 9}).json() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/repos/nobody/nothing", None, 404),
        ("GET", "{at}/issues/999", None, 404),
        ("GET", "{at}/pulls/999", None, 404),
        ("GET", "{at}/branches/absent", None, 404),
        ("GET", "{at}/contents/absent.txt", None, 404),
        ("GET", "{at}/commits?sha=absent", None, 404),
        ("GET", "/nowhere", None, 404),
        ("POST", "{at}/issues", {"title": ""}, 422),
        ("POST", "{at}/issues/1/comments", {"body": "x"}, 404),
        ("POST", "{at}/branch_protections", {"rule_name": "main"}, 403),
        ("POST", "/admin/users", {"username": "x"}, 403),
        ("POST", "{at}/contents/README.md", {"content": "eA=="}, 422),
        ("PUT", "{at}/contents/README.md", {"content": "eA==", "sha": "0" * 40}, 422),
        ("POST", "{at}/contents/%2e%2e/x", {"content": "eA=="}, 422),
        ("POST", "{at}/contents/a.txt", {"content": "not base64"}, 422),
        ("POST", "/user/repos", {"name": "a/b"}, 422),
    ],
)
def test_refusals(world: World, method: str, path: str, body: Any, status: int) -> None:
    answer = world.ann.http.request(method, path.replace("{at}", world.at), json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) >= {"message", "url"}


def test_a_taken_repository_name_is_409(world: World) -> None:
    body = {"name": world.name.upper()}
    assert world.owner.http.post("/user/repos", json=body).status_code == 409
    made = world.admin_http.post(f"/admin/users/{world.ann.name}/repos", json={"name": "given"})
    assert (made.status_code, made.json()["owner"]["login"], made.json()["empty"]) == (201, world.ann.name, True)


@embedded_only
def test_awkward_texts(world: World) -> None:
    refused = world.ann.http.post(
        f"{world.at}/issues", content=b'{"title": "\\ud800"}', headers={"Content-Type": "application/json"}
    )
    assert refused.status_code == 422
    title = "a\u0000b \\ % _ ' \" 🫠"
    made = world.ann.http.post(f"{world.at}/issues", json={"title": title})
    assert made.json()["title"] == title
    big = world.ann.http.post(f"{world.at}/issues", content=b'{"title": "' + b"x" * 34_000_000 + b'"}')
    assert big.status_code == 413
    assert world.ann.http.get(f"{world.at}/issues/{2**70}").status_code == 422


def test_main_takes_no_commit_through_the_api_either(world: World) -> None:
    world.protect()
    body = {"content": "eA==", "message": "x"}
    assert world.ann.http.post(f"{world.at}/contents/x.txt", json=body).status_code == 403
    aside = world.ann.http.post(f"{world.at}/contents/x.txt", json={**body, "new_branch": "side"})
    assert aside.status_code == 201
    assert world.ann.http.delete(f"{world.at}/branches/main").status_code == 403


def test_issue_filters(world: World) -> None:
    ids = {
        name: world.ann.http.post(f"{world.at}/labels", json={"name": name, "color": "#112233"}).json()["id"]
        for name in ("one", "two")
    }
    ann, ben = world.ann, world.ben
    for title, member, labels in (
        ("alpha", ann, ["one"]),
        ("beta", ben, ["two"]),
        ("100% gamma", ben, []),
        ("alphabet", ann, ["one", "two"]),
    ):
        body = {"title": title, "labels": [ids[name] for name in labels], "body": f"for @{ben.name}"}
        assert member.http.post(f"{world.at}/issues", json=body).status_code == 201
    ann.http.patch(f"{world.at}/issues/1", json={"assignees": [ben.name]})
    ann.http.patch(f"{world.at}/issues/2", json={"state": "closed"})
    cases: list[tuple[dict[str, str], list[int]]] = [
        ({}, [4, 3, 1]),
        ({"state": "closed"}, [2]),
        ({"state": "all"}, [4, 3, 2, 1]),
        ({"labels": "one"}, [4, 1]),
        ({"labels": "one,two", "state": "all"}, [4, 2, 1]),
        ({"labels": "absent,two", "state": "all"}, [4, 2]),
        ({"labels": "absent"}, [4, 3, 1]),
        ({"q": "ALPHA"}, [4, 1]),
        ({"q": "100%"}, [3]),
        ({"assigned_by": ben.name}, [1]),
        ({"created_by": ann.name}, [4, 1]),
        ({"mentioned_by": ben.name}, [4, 1]),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"before": "1999-01-01T00:00:00Z"}, []),
    ]
    for query, numbers in cases:
        found = ann.http.get(f"{world.at}/issues", params={"type": "issues", **query}).json()
        assert [issue["number"] for issue in found] == numbers, query
