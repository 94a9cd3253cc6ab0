"""The forge's answers, as Gitea words them."""

from __future__ import annotations

import httpx
import pytest

from agensh.clients.gitea import MergeStatus, Thread
from agensh.clients.gitea_core import describe
from agensh.clients.gitea_events import ForgeSignal, GiteaEventStream
from agensh.clients.gitea_models import Commit, Issue, timestamp
from agensh.clients.gitea_pulls import read_merge_answer
from agensh.errors import ServiceError
from agensh.provision.forge import issue_title

CONFLICT = {"Style": "merge", "StdErr": "", "StdOut": "CONFLICT (content): Merge conflict in a", "Err": {}}


@pytest.mark.parametrize(
    ("status", "answer", "meaning"),
    [
        (200, None, MergeStatus.MERGED),
        (201, None, MergeStatus.TRY_LATER),
        (405, {"message": "Please try again later"}, MergeStatus.TRY_LATER),
        (405, {"message": "The PR is already merged"}, MergeStatus.MERGED),
        (405, {"message": "User not allowed to merge PR"}, MergeStatus.REFUSED),
        (405, {"message": "Work in progress PRs cannot be merged"}, MergeStatus.REFUSED),
        (405, {"message": "PR is not ready to be merged: Does not have enough approvals"}, MergeStatus.REFUSED),
        (405, {"message": "Invalid merge style: squash is not allowed an allowed merge style"}, MergeStatus.REFUSED),
        (409, {"message": "merge push out of date"}, MergeStatus.BASE_RACE),
        (409, {"message": "head out of date"}, MergeStatus.HEAD_MOVED),
        (409, CONFLICT, MergeStatus.CONFLICT),
        (409, {"Style": "rebase", "CommitSHA": "abc", "StdOut": "x"}, MergeStatus.CONFLICT),
        (409, {"message": "PushRejected with remote error message: no"}, MergeStatus.REFUSED),
        (409, {"message": "PushRejected without remote error message"}, MergeStatus.REFUSED),
        (404, {"message": "The target couldn't be found."}, MergeStatus.CLOSED),
        (403, {"message": "token does not have at least one of required scope(s)"}, MergeStatus.REFUSED),
        (423, {"message": "repo is archived"}, MergeStatus.REFUSED),
    ],
)
def test_the_merge_table(status: int, answer: object, meaning: MergeStatus) -> None:
    response = httpx.Response(status) if answer is None else httpx.Response(status, json=answer)
    assert read_merge_answer(response).status is meaning


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (httpx.Response(422, json={"message": "name taken", "url": "x"}), "name taken"),
        (httpx.Response(422, json={"message": "", "errors": ["a is bad", "b too"]}), "a is bad; b too"),
        (httpx.Response(502, text="<html>Bad gateway</html>"), "<html>Bad gateway</html>"),
        (httpx.Response(500), "Internal Server Error"),
        (httpx.Response(400, json=["odd"]), "['odd']"),
    ],
)
def test_errors_keep_the_forges_words(response: httpx.Response, words: str) -> None:
    assert describe(response) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("0001-01-01T00:00:00Z", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_timestamps(text: str | None, seconds: float) -> None:
    assert timestamp(text) == seconds


def test_a_notification_without_access_has_no_repository() -> None:
    thread = Thread.of({"id": 7, "unread": True, "repository": None, "subject": None, "new_field": 1})
    assert (thread.repo, thread.number, thread.updated_at) == ("", 0, 0.0)


def test_a_notification_names_its_issue() -> None:
    subject = {"type": "Pull", "title": "x", "url": "http://f/api/v1/repos/o/r/issues/12", "state": "open"}
    thread = Thread.of({"id": 7, "unread": False, "repository": {"full_name": "o/r"}, "subject": subject})
    assert (thread.repo, thread.number) == ("o/r", 12)
    commit = {"type": "Commit", "url": "http://f/api/v1/repos/o/r/git/commits/" + "a" * 40}
    assert Thread.of({"id": 7, "repository": {"full_name": "o/r"}, "subject": commit}).number == 0


def test_missing_fields_are_empty() -> None:
    issue = Issue.of({"number": 3, "user": None, "labels": None, "assignees": None, "pull_request": None})
    assert (issue.author, issue.labels, issue.is_pull) == ("", (), False)
    commit = Commit.of({"sha": "a", "author": None, "commit": {"author": {"name": "N"}, "message": "m"}})
    assert (commit.author, commit.parents) == ("N", ())


LONG = "a" * 119


@pytest.mark.parametrize(
    ("goal", "title"),
    [("\n# Build it\nmore", "Build it"), ("one\ntwo", "one"), (f"{LONG} b", LONG), (f"{LONG}bc", f"{LONG}b")],
)
def test_issue_titles(goal: str, title: str, tmp_path: object) -> None:
    assert issue_title(goal, tmp_path) == title  # type: ignore[arg-type]


async def read(stream: bytes) -> tuple[list[ForgeSignal], str]:
    """The signals of an event stream, and why it ended."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/user/login":
            return httpx.Response(303, headers={"location": "/", "set-cookie": "i_like_gitea=s3; Path=/; HttpOnly"})
        assert request.headers["cookie"] == "i_like_gitea=s3"
        return httpx.Response(200, content=stream)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as connection:
        events = GiteaEventStream("http://forge", "me", "password", http=connection)
        await events.connect()
        found: list[ForgeSignal] = []
        signals = events.signals()
        try:
            while True:
                found.append(await anext(signals))
        except ServiceError as error:
            return found, error.reason
        finally:
            await events.disconnect()


@pytest.mark.parametrize(
    ("stream", "signals"),
    [
        (b"\n", []),
        (b"\nevent: ping\n\n", [ForgeSignal("ping")]),
        (b'event: notification-count\ndata: {"UserID":4,"Count":3}\n\n', [ForgeSignal("notification", 3)]),
        (b'event: notification-count\r\ndata:{"Count":0}\r\n\r\n', [ForgeSignal("notification", 0)]),
        (b"event: notification-count\ndata: nonsense\n\n", [ForgeSignal("notification", 0)]),
        (b"event: close\ndata: unauthorized\n\n", [ForgeSignal("closed")]),
        (b"event: logout\ndata: here\n\n", [ForgeSignal("closed")]),
        (b"event: stopwatches\ndata: []\n\nevent: ping\n\n", [ForgeSignal("ping")]),
        (b"event: ping", []),
    ],
)
async def test_the_event_stream(stream: bytes, signals: list[ForgeSignal]) -> None:
    assert await read(stream) == (signals, "it ended")
