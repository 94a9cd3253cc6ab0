"""Reads one issue or pull request and tells what is new for a worker.

Comments and reviews are told apart by their ids, states and pushes by what they changed to. A worker's own doings are
no events. In a thread that is new to the worker, what was said before it got involved is not news either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agensh.clients.gitea import Comment, GiteaClient, Happening, Issue, Pull, Review, Thread
from agensh.text import one_line
from router.events import Kind, NewEvent, Priority, Source
from router.listeners.mentions import mentions

OVERLAP = 60.0  # seconds; a comment becomes visible after a later one if its transaction took longer
FIRST_READING = 50  # newest comments told of a thread whose reason is not in its texts (assignment, watching)
SUMMARY = 400  # characters
TITLE = 80  # characters


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What was read of a thread so far; stored as JSON beside the events."""

    since: float
    """Time of the newest comment; those of about a minute before it are read again."""
    state: str
    """`open`, `closed` or `merged`."""
    head: str = ""
    """Of a pull request: the commit its branch is at."""
    first: int = 0
    """Id of the first comment that concerns the worker."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ThreadState:
        """Read what `to_json` wrote."""
        return cls(
            since=float(value.get("since") or 0.0),
            state=str(value.get("state") or ""),
            head=str(value.get("head") or ""),
            first=int(value.get("first") or 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


async def read_thread(
    client: GiteaClient, me: str, thread: Thread, before: ThreadState | None, now: float
) -> tuple[list[NewEvent], ThreadState]:
    """Return the thread's events for the worker `me` and what is read of it now; ServiceError when it cannot be read.

    Events that were returned by an earlier call may be returned again, under the same keys.
    """
    owner, _, repo = thread.repo.partition("/")
    issue = await client.issue(owner, repo, thread.number)
    # Newer comments may carry older times than those read before: the forge's clock may have been set back.
    since = None if before is None else max(0.0, min(before.since, thread.updated_at) - OVERLAP)
    comments = await client.comments(owner, repo, thread.number, since=since)
    pull = await client.pull(owner, repo, thread.number) if issue.is_pull else None
    reviews = await client.pull_reviews(owner, repo, thread.number) if pull is not None else []
    teller = _Teller(me, thread, issue, pull, now)

    first = before.first if before is not None else _first_concern(me, issue, comments)
    events = teller.opening(first) if before is None else []
    known = before
    if known is None and issue.author == me:
        # Its author knows it as it was opened: a merge may be the first thing to be heard of.
        known = ThreadState(since=0.0, state="open")
    if known is not None:
        turn = None
        if teller.state != known.state and teller.state != "merged":
            happened = await client.timeline(owner, repo, thread.number, since=since)
            turns = [entry for entry in happened if entry.kind in {"close", "reopen"}]
            turn = turns[-1] if turns else None
        events += teller.changes(known, turn)
    events += [teller.comment(comment) for comment in comments if comment.author != me and comment.id >= first]
    events += [event for review in reviews if (event := teller.review(review)) is not None]
    after = ThreadState(
        since=max([comment.updated_at for comment in comments] + [before.since if before else 0.0]),
        state=teller.state,
        head=pull.head_sha if pull else "",
        first=first,
    )
    return events, after


def _first_concern(me: str, issue: Issue, comments: Sequence[Comment]) -> int:
    """Return the id of the first comment that concerns `me`; 0 when all of them do."""
    if issue.author == me or mentions(issue.body, me):
        return 0
    for comment in comments:
        if comment.author == me or mentions(comment.body, me):
            return comment.id
    return comments[-FIRST_READING].id if len(comments) > FIRST_READING else 0


class _Teller:
    """Words the events of one thread."""

    def __init__(self, me: str, thread: Thread, issue: Issue, pull: Pull | None, now: float) -> None:
        self.me = me
        self.repo = thread.repo
        self.issue = issue
        self.pull = pull
        self.now = now
        self.state = "merged" if pull is not None and pull.merged else issue.state
        noun = "pull request" if pull is not None else "issue"
        title = one_line(issue.title, TITLE).replace('"', "'")
        self.name = f'{noun} #{issue.number} "{title}"'
        self.key = f"{thread.repo}#{issue.number}"

    def opening(self, first: int) -> list[NewEvent]:
        """The issue itself, when it is the reason why the worker hears of it."""
        issue, pull = self.issue, self.pull
        if issue.author == self.me or first:
            return []
        mentioned = mentions(issue.body, self.me) or mentions(issue.title, self.me)
        kind = Kind.MENTION if mentioned else Kind.PULL_OPENED if pull is not None else Kind.ISSUE
        verb = "mentioned you in" if mentioned else "opened"
        branch = f" (branch {pull.head_branch})" if pull is not None else ""
        text = f"{issue.author} {verb} {self.name}{branch}: {issue.body}"
        return [self._event(kind, f"gitea:issue:{self.key}", text, issue.created_at, issue.author, mentioned=mentioned)]

    def changes(self, before: ThreadState, turn: Happening | None) -> list[NewEvent]:
        """What changed since the thread was read before; `turn` is the closing or reopening that led to its state."""
        events = []
        pull = self.pull
        if self.state != before.state:
            if pull is not None and pull.merged:
                if pull.merged_by != self.me:
                    who = pull.merged_by or "somebody"
                    text = f"{who} merged {self.name} into {pull.base_branch} as {pull.merge_commit[:10]}"
                    key = f"gitea:merged:{self.key}"
                    events.append(self._event(Kind.PULL_MERGED, key, text, pull.merged_at or self.now, who))
            elif turn is None or turn.author != self.me:
                reopened = self.state == "open"
                kind = Kind.ISSUE if pull is None else Kind.PULL_UPDATED if reopened else Kind.PULL_CLOSED
                who = turn.author if turn is not None else "somebody"
                text = f"{who} {'reopened' if reopened else 'closed'} {self.name}"
                # Without an entry of the timeline the time of the change tells two closings apart.
                key = f"gitea:{self.state}:{self.key}:{turn.id if turn else int(self.issue.updated_at)}"
                at = turn.created_at if turn is not None else self.issue.updated_at
                events.append(self._event(kind, key, text, at or self.now, who))
        if pull is not None and before.head and pull.head_sha != before.head and pull.author != self.me:
            text = f"{pull.author}'s {self.name} has new commits; {pull.head_branch} is now at {pull.head_sha[:10]}"
            key = f"gitea:pushed:{self.key}:{pull.head_sha}"
            events.append(self._event(Kind.PULL_UPDATED, key, text, pull.updated_at or self.now, pull.author))
        return events

    def comment(self, comment: Comment) -> NewEvent:
        """A comment of somebody else."""
        mentioned = mentions(comment.body, self.me)
        verb = "mentioned you in" if mentioned else "commented on"
        return self._event(
            Kind.MENTION if mentioned else Kind.COMMENT,
            f"gitea:comment:{comment.id}",
            f"{comment.author} {verb} {self.name}: {comment.body}",
            comment.created_at,
            comment.author,
            mentioned=mentioned,
            comment_id=comment.id,
        )

    def review(self, review: Review) -> NewEvent | None:
        """A review by somebody else, or the request for one of the worker's own."""
        if review.state == "REQUEST_REVIEW" and review.author == self.me:
            author = self.issue.author
            key = f"gitea:review_request:{review.id}"
            text = f"{author} asks you to review {self.name}"
            return self._event(Kind.REVIEW, key, text, review.submitted_at or self.now, author, mentioned=True)
        if review.author == self.me or review.state in {"PENDING", "REQUEST_REVIEW"}:
            return None
        verb = {"APPROVED": "approved", "REQUEST_CHANGES": "asks for changes in"}.get(review.state, "reviewed")
        mentioned = mentions(review.body, self.me)
        return self._event(
            Kind.REVIEW,
            f"gitea:review:{review.id}",
            f"{review.author} {verb} {self.name}: {review.body}".rstrip(": "),
            review.submitted_at or self.now,
            review.author,
            mentioned=mentioned,
            review_id=review.id,
        )

    def _event(
        self, kind: Kind, key: str, text: str, at: float, author: str, *, mentioned: bool = False, **ids: int
    ) -> NewEvent:
        return NewEvent(
            source=Source.GITEA,
            kind=kind,
            dedupe_key=key,
            summary=one_line(text, SUMMARY),
            observed_at=at,
            thread=f"gitea:{self.key}",
            priority=Priority.MENTION if mentioned else Priority.REST,
            body={
                "repo": self.repo,
                "number": self.issue.number,
                "is_pull": self.pull is not None,
                "author": author,
                **ids,
            },
        )
