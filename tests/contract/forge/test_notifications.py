"""Notification threads and the event stream: who hears of what, and how little the stream says."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any

import httpx
import pytest

from tests.contract.forge.world import PASSWORD, Member, World, eventually

real = "AGENSH_GITEA_URL" in os.environ


def threads(member: Member, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = member.http.get("/notifications", params=query).json()
    return found


def heard(member: Member) -> int:
    count: int = member.http.get("/notifications/new").json()["new"]
    return count


def issue(world: World, member: Member, title: str = "An issue", **fields: Any) -> int:
    answer = member.http.post(f"{world.at}/issues", json={"title": title, **fields})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["number"])


def comment(world: World, member: Member, number: int, body: str = "hello") -> dict[str, Any]:
    answer = member.http.post(f"{world.at}/issues/{number}/comments", json={"body": body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def read_all(member: Member) -> httpx.Response:
    return member.http.put("/notifications")


def test_who_hears_of_what(world: World) -> None:
    """Nobody watches by itself; participants, the mentioned, the assigned and the asked hear; the actor never does."""
    number = issue(world, world.ann)
    assert [heard(m) for m in (world.owner, world.ann, world.ben)] == [0, 0, 0]
    comment(world, world.ben, number)
    eventually(lambda: heard(world.ann) == 1, "the poster hears of the comment")
    assert [heard(world.owner), heard(world.ben)] == [0, 0]
    read_all(world.ann)
    comment(world, world.ann, number, f"@{world.owner.name} look, not `@{world.ben.name}x`")
    eventually(lambda: heard(world.owner) == 1 and heard(world.ben) == 1, "the mentioned and the participant hear")
    assert heard(world.ann) == 0
    for member in (world.owner, world.ben):
        read_all(member)
    # A label, a new title and a commit status are told to nobody.
    label = world.ann.http.post(f"{world.at}/labels", json={"name": "l", "color": "#123456"}).json()
    world.ann.http.post(f"{world.at}/issues/{number}/labels", json={"labels": [label["id"]]})
    world.ann.http.patch(f"{world.at}/issues/{number}", json={"title": "Another title"})
    assert [heard(m) for m in (world.owner, world.ann, world.ben)] == [0, 0, 0]
    world.ann.http.patch(f"{world.at}/issues/{number}", json={"assignees": [world.owner.name, world.ann.name]})
    eventually(lambda: heard(world.owner) == 1, "the assigned hears")
    assert [heard(world.ann), heard(world.ben)] == [0, 0]
    world.ann.http.patch(f"{world.at}/issues/{number}", json={"state": "closed"})
    eventually(lambda: heard(world.ben) == 1, "a participant hears of the closing")
    assert threads(world.ben)[0]["subject"]["state"] == "closed"


def test_an_unwatched_issue_is_silent_even_for_a_participant(world: World) -> None:
    number = issue(world, world.ann)
    answer = world.ann.http.delete(f"{world.at}/issues/{number}/subscriptions/{world.ann.name}")
    assert answer.status_code == 201
    comment(world, world.ben, number)
    comment(world, world.owner, number)
    eventually(lambda: heard(world.ben) == 1, "the other participant hears")
    assert heard(world.ann) == 0


def test_pull_request_events(world: World) -> None:
    world.branch(world.ann, "work", {"a.txt": "1\n"})
    number = world.pull(world.ann, "work", "Title", body=f"for @{world.owner.name}")["number"]
    eventually(lambda: heard(world.owner) == 1, "the mentioned hears of the pull request")
    asked = world.ann.http.post(f"{world.at}/pulls/{number}/requested_reviewers", json={"reviewers": [world.ben.name]})
    assert asked.status_code == 201
    eventually(lambda: heard(world.ben) == 1, "the reviewer hears")
    assert heard(world.ann) == 0
    world.ben.http.post(f"{world.at}/pulls/{number}/reviews", json={"event": "COMMENT", "body": "hm"})
    eventually(lambda: heard(world.ann) == 1, "the poster hears of the review")
    read_all(world.ben)
    clone = world.clone(world.ann)
    clone.git("switch", "-q", "work")
    clone.commit({"a.txt": "2\n"})
    clone.git("push", "-q")
    eventually(lambda: heard(world.ben) == 1, "who reviewed hears of the push")
    read_all(world.ben)
    world.mergeable(number)
    assert world.merge(world.ann, number).status_code == 200
    eventually(lambda: heard(world.ben) == 1, "who reviewed hears of the merge")
    thread = threads(world.ben)[0]
    assert (thread["subject"]["type"], thread["subject"]["state"]) == ("Pull", "merged")


def test_watchers_are_spared_work_in_progress(world: World) -> None:
    world.ben.http.put(f"{world.at}/subscription")
    for branch, title in (("one", "WIP: one"), ("two", "two")):
        world.branch(world.ann, branch, {f"{branch}.txt": "1\n"})
        world.pull(world.ann, branch, title)
    eventually(lambda: heard(world.ben) == 1, "the watcher hears of the finished one")
    assert [t["subject"]["title"] for t in threads(world.ben)] == ["two"]


def test_one_row_a_thread_and_the_newest_comment(world: World) -> None:
    number = issue(world, world.ann)
    made = [comment(world, world.ben, number, f"comment {i}") for i in range(3)]
    eventually(lambda: heard(world.ann) == 1, "three comments are one thread")
    (thread,) = threads(world.ann)
    last = f"/issues/comments/{made[-1]['id']}"
    eventually(lambda: threads(world.ann)[0]["subject"]["latest_comment_url"].endswith(last), "the newest is linked")
    assert set(thread) == {"id", "repository", "subject", "unread", "pinned", "updated_at", "url"}
    marked = world.ann.http.patch(f"/notifications/threads/{thread['id']}")
    assert marked.status_code == 205
    assert marked.json()["unread"] is False
    assert threads(world.ann) == []
    comment(world, world.ben, number)
    eventually(lambda: [t["id"] for t in threads(world.ann)] == [thread["id"]], "the same row is unread again")
    other = world.ben.http.patch(f"/notifications/threads/{thread['id']}")
    assert other.status_code == 403


def test_since_and_before_are_inclusive_whole_seconds(world: World) -> None:
    number = issue(world, world.ann)
    made = comment(world, world.ben, number)
    eventually(lambda: heard(world.ann) == 1, "the thread is there")
    at = threads(world.ann)[0]["updated_at"]
    second = datetime.fromisoformat(at)
    assert second.microsecond == 0
    later = (second + timedelta(seconds=1)).isoformat()
    earlier = (second - timedelta(seconds=1)).isoformat()
    assert len(threads(world.ann, since=at)) == 1
    assert threads(world.ann, since=later) == []
    assert len(threads(world.ann, before=at)) == 1
    assert threads(world.ann, before=earlier) == []
    url = f"{world.at}/issues/{number}/comments"
    for key, time, count in (("since", 0, 1), ("since", 1, 0), ("before", 0, 1), ("before", -1, 0)):
        when = (datetime.fromisoformat(made["updated_at"]) + timedelta(seconds=time)).isoformat()
        assert len(world.ann.http.get(url, params={key: when}).json()) == count, (key, time)
    if not real:
        bad = world.ann.http.get("/notifications", params={"since": "yesterday"})
        assert bad.status_code == 422
        assert "since: 'yesterday'" in bad.json()["message"]


def test_marking_until_a_second_answers_205_with_the_threads(world: World) -> None:
    number = issue(world, world.ann)
    comment(world, world.ben, number)
    eventually(lambda: heard(world.ann) == 1, "the thread is there")
    at = threads(world.ann)[0]["updated_at"]
    earlier = (datetime.fromisoformat(at) - timedelta(seconds=1)).isoformat()
    none = world.ann.http.put("/notifications", params={"last_read_at": earlier})
    assert (none.status_code, none.json()) == (205, [])
    marked = world.ann.http.put("/notifications", params={"last_read_at": at})
    assert marked.status_code == 205
    assert [t["unread"] for t in marked.json()] == [False]
    assert heard(world.ann) == 0
    assert len(threads(world.ann, all="true")) == 1
    assert len(threads(world.ann, **{"status-types": "read"})) == 1
    back = world.ann.http.put("/notifications", params={"status-types": "read", "to-status": "pinned"})
    assert [t["pinned"] for t in back.json()] == [True]
    assert heard(world.ann) == 0  # pinned is listed by default, and is not counted as new
    assert len(threads(world.ann)) == 1
    assert threads(world.ann, **{"subject-type": "pull"}) == []


def sign_in(world: World, member: Member, password: str = PASSWORD) -> httpx.Client:
    client = httpx.Client(base_url=world.forge.url, timeout=10)
    client.post("/user/login", data={"user_name": member.name, "password": password})
    return client


class Listener:
    """Reads an event stream on a thread of its own: (event, data) pairs."""

    def __init__(self, response: httpx.Response) -> None:
        self.events: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._response = response
        self.thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        name = ""
        try:
            for line in self._response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.events.put((name, line.removeprefix("data: ")))
        except httpx.TransportError:
            return

    def next(self, seconds: float = 20) -> tuple[str, str]:
        return self.events.get(timeout=seconds)


@contextmanager
def listening(client: httpx.Client) -> Iterator[Listener]:
    with client.stream("GET", "/user/events", timeout=httpx.Timeout(10, read=None)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        listener = Listener(response)
        listener.thread.start()
        try:
            yield listener
        finally:
            # Shutting the socket down ends the reading thread; closing a response under a reader does not.
            response.extensions["network_stream"].get_extra_info("socket").shutdown(2)
            listener.thread.join(10)


def test_the_stream_counts_and_echoes_the_own_mark_read(world: World) -> None:
    number = issue(world, world.ann)
    with contextlib.closing(sign_in(world, world.ann)) as client, listening(client) as stream:
        comment(world, world.ben, number)
        name, data = stream.next()
        assert name == "notification-count"
        me = world.ann.http.get("/user").json()["id"]
        assert json.loads(data) == {"UserID": me, "Count": 1}
        read_all(world.ann)
        name, data = stream.next()
        assert json.loads(data) == {"UserID": me, "Count": 0}


def test_a_new_stream_starts_silent(world: World) -> None:
    number = issue(world, world.ann)
    with (
        contextlib.closing(sign_in(world, world.ann)) as client,
        contextlib.closing(sign_in(world, world.ann)) as before,
    ):
        # What was before a stream is told to those who listened then.
        with listening(before) as witness:
            comment(world, world.ben, number)
            assert witness.next()[0] == "notification-count"
        eventually(lambda: heard(world.ann) == 1, "the thread is there")
        with listening(client) as stream:
            if not real:
                with pytest.raises(Empty):
                    stream.next(0.5)
            comment(world, world.ben, number)
            assert stream.next()[0] == "notification-count"


@pytest.mark.parametrize("way", ["nothing", "token", "basic", "wrong password"])
def test_without_a_session_the_stream_is_200_and_closes(world: World, way: str) -> None:
    headers = {"Authorization": f"token {world.ann.token}"} if way == "token" else {}
    auth = (world.ann.name, PASSWORD) if way == "basic" else None
    client = sign_in(world, world.ann, "not-the-password") if way == "wrong password" else httpx.Client()
    with contextlib.closing(client):
        answer = client.get(f"{world.forge.url}/user/events", headers=headers, auth=auth)
    assert answer.status_code == 200
    assert answer.text == "event: close\ndata: unauthorized\n\n"


def test_form_login(world: World) -> None:
    with httpx.Client(base_url=world.forge.url) as client:
        wrong = client.post("/user/login", data={"user_name": world.ann.name, "password": "wrong-password"})
        assert wrong.status_code == 200
        assert "i_like_gitea" not in client.cookies or real
        right = client.post("/user/login", data={"user_name": world.ann.name, "password": PASSWORD})
        assert right.status_code == 303
        assert "i_like_gitea" in client.cookies
