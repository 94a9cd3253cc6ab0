"""The posts of the task channel: each is kept once for the run, and each worker has a position in them.

What somebody writes to everybody is an event of every worker. With a row for each of them a team of 1,024 would write
1,023 rows a post, 1,700 a second; with one row and positions it writes one.

Contract:
- A post is in the ring of a host only after its commit, and a listener lets go of it only then.
- `seq` is gapless and in the order of the commits (the run's row is locked meanwhile), and a host that commits reads
  everything after its own newest post: a position never moves past a post that is yet to come.
- A worker's position moves when the turn that carried the posts ended well, or when the worker read the channel by
  itself and its next call proved that. Positions are saved once a second: a crash may repeat posts and loses none.
- Any worker of a host may bring a post: all of a team are members of its task channel.
"""

from __future__ import annotations

import asyncio
import json
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agensh.clients.mattermost_models import Post
from agensh.clock import Clock
from agensh.text import one_line
from router.events import Kind, Priority, QueuedEvent, Source
from router.listeners.mentions import mentions
from router.tables import posts, runs
from router.writer import Merge, Writer

CURSOR = "posts"
CAPACITY = 10_000  # posts in the ring; what is older is read from the database
FIRST_READING = 50  # newest posts of a channel that is new to the worker; mentions are told however old
SUMMARY = 400  # characters
OVERLAP_MS = 10_000
SETTLED_MS = 30_000
"""A post this old by the chat's clock is older than any that may still become visible: the overlap, and some room."""
REMEMBERED = 1000  # posts, candidates for the anchor
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelPost:
    """One post of the task channel as the run keeps it."""

    seq: int
    post_id: str
    author: str
    message: str
    created_at: float
    """Epoch seconds, the chat's time."""
    root_id: str


@dataclass(frozen=True, slots=True)
class _Batch:
    """Posts on their way into the database, of a host that has all up to `after`."""

    posts: tuple[Mapping[str, Any], ...]
    after: int


class PostFeed:
    """The ring of a host and the only way into it (`take`)."""

    def __init__(self, writer: Writer, clock: Clock, channel_id: str, *, capacity: int = CAPACITY) -> None:
        self.channel_id = channel_id
        self.head = 0
        """Seq of the newest post."""
        self.reading = asyncio.Lock()
        """Held by the one listener that reads the channel back for all."""
        self.read_at: tuple[int, int] | None = None
        """The channel's newest time and count of posts when it was last read back."""
        self._writer = writer
        self._clock = clock
        self._capacity = capacity
        self._posts: list[ChannelPost] = []
        self._known: set[str] = set()
        self._recent: list[tuple[int, str]] = []
        """Time and id of taken posts, ascending, the system's included; candidates for the anchor."""
        self._pushed: dict[str, Post] = {}
        """Posts that were pushed and are not committed yet, in the order in which they were heard."""
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._boxes: list[PostBox] = []

    async def load(self) -> None:
        """Take up what is there, at the start; DatabaseUnavailable when it cannot be read."""
        query = select(posts).order_by(posts.c.seq.desc()).limit(self._capacity)
        rows = await self._writer.read(lambda connection: connection.execute(query))
        self._add([_post(row) for row in reversed(rows.all())])
        self._recent = sorted((round(post.created_at * 1000), post.post_id) for post in self._posts[-REMEMBERED:])

    def knows(self, post_id: str) -> bool:
        """Say whether a post is in the ring."""
        return post_id in self._known

    def heard(self, post: Post) -> bool:
        """Keep a post that was pushed until it is brought; say whether it is news, so that somebody has to bring it.

        Whoever brings posts brings all of these, not only those that it heard first: were one left to a listener that
        is held up, the anchor would move beyond it, and a host that is killed then would never hear of it again.
        """
        if post.id in self._known or post.id in self._pushed:
            return False
        self._pushed[post.id] = post
        return True

    @property
    def backlog(self) -> int:
        """How many posts were pushed and are not committed yet."""
        return len(self._pushed)

    def pushed(self, most: int) -> list[Post]:
        """Return those that were heard first."""
        return list(islice(self._pushed.values(), most))

    def forget_pushed(self) -> None:
        """Leave what was pushed to the next reading of the channel."""
        self._pushed.clear()

    def newest_at(self) -> int:
        """Return the time of the newest post that was taken (milliseconds, the chat's time; the system's included)."""
        return self._recent[-1][0] if self._recent else 0

    def anchor(self, now: float) -> str:
        """Return the id of the post after which the channel is to be read back; empty: from its beginning.

        `now` is by the chat's clock (epoch seconds): our own may be an hour off.

        Posts become visible in another order than that of their times, so it is some seconds older than the newest.
        """
        if not self._recent:
            return ""
        settled = max(self._recent[-1][0] - OVERLAP_MS, int(now * 1000) - SETTLED_MS)
        place = bisect_right(self._recent, (settled, "\uffff"))
        del self._recent[: max(0, place - 1)]
        return self._recent[0][1] if place else ""

    def newest(self, count: int) -> list[ChannelPost]:
        """Return the newest posts, ascending."""
        return self._posts[-count:]

    def after(self, seq: int) -> list[ChannelPost]:
        """Return the posts of the ring after `seq`, ascending."""
        return self._posts[bisect_right(self._posts, seq, key=_seq) :]

    async def all_after(self, seq: int) -> list[ChannelPost]:
        """Return all posts after `seq`, ascending; those that fell out of the ring come from the database."""
        first = self._posts[0].seq if self._posts else self.head + 1
        if first <= seq + 1:
            return self.after(seq)
        query = select(posts).where(posts.c.seq > seq, posts.c.seq < first).order_by(posts.c.seq)
        rows = await self._writer.read(lambda connection: connection.execute(query))
        return [_post(row) for row in rows] + self._posts[:]

    def box(self, worker: str, on_new: Callable[[], None]) -> PostBox:
        """Return the view of one worker; `on_new` hears of new posts."""
        box = PostBox(worker, self, on_new)
        self._boxes.append(box)
        return box

    async def take(self, found: Sequence[Post], names: Mapping[str, str]) -> None:
        """Return once all of `found` are committed, by this or another call; `names` has the authors' by account.

        Those of the system are only taken note of. DatabaseUnavailable when the database does not take them.
        """
        own = [post for post in found if not post.type.startswith("system_")]
        fresh = [post for post in own if post.id not in self._known and post.id not in self._coming]
        waited = {self._coming[post.id] for post in own if post.id in self._coming}
        if fresh:
            rows = tuple(_row(post, names.get(post.user_id, post.user_id), self._clock.time()) for post in fresh)
            task = asyncio.create_task(self._commit(rows), name="posts")
            self._coming.update((post.id, task) for post in fresh)
            waited.add(task)
        for task in waited:
            # Others wait for the same commit: a caller that is cancelled leaves it to them.
            await asyncio.shield(task)
        for post in found:
            entry = (post.create_at, post.id)
            place = bisect_right(self._recent, entry)
            if not place or self._recent[place - 1] != entry:
                self._recent.insert(place, entry)
            self._pushed.pop(post.id, None)
        del self._recent[:-REMEMBERED]

    async def _commit(self, rows: tuple[Mapping[str, Any], ...]) -> None:
        try:
            self._add(await self._writer.submit_item(_POSTS, _Batch(rows, self.head)))
        finally:
            for row in rows:
                self._coming.pop(row["post_id"], None)

    def _add(self, found: Sequence[ChannelPost]) -> None:
        new = [post for post in found if post.seq > self.head]
        if not new:
            return
        self._posts += new
        self._known.update(post.post_id for post in new)
        for post in new:
            self._pushed.pop(post.post_id, None)
        self.head = new[-1].seq
        surplus = len(self._posts) - self._capacity
        if surplus > 0:
            # A tenth at a time: cutting the head of a list costs its length.
            cut = max(surplus, self._capacity // 10)
            self._known.difference_update(post.post_id for post in self._posts[:cut])
            del self._posts[:cut]
        for box in self._boxes:
            box.on_new()


@dataclass(slots=True)
class PostBox:
    """What one worker has not been told of the channel. One event loop only; a post's event has the id `-seq`."""

    worker: str
    feed: PostFeed
    on_new: Callable[[], None]
    _position: int = 0
    """Everything up to it is done with."""
    _done: set[int] = field(default_factory=set)
    """After the position, and done with."""
    _out: set[int] = field(default_factory=set)
    """In a turn, or read by the worker; not proved."""
    _due: float = 0.0
    """When a delivery that failed may be tried again (epoch seconds)."""
    _failures: int = 0
    """Deliveries in a row that failed."""
    _moved: bool = False
    """The position may have changed since it was saved."""

    def restore(self, saved: str | None) -> None:
        """Take up the saved position; a worker that has none is told the newest posts and what comes."""
        if saved is None:
            newest = self.feed.newest(FIRST_READING)
            self._position = newest[0].seq - 1 if newest else self.feed.head
            self._moved = True  # or a restart would begin with the newest ones again
        else:
            value = json.loads(saved)
            self._position, self._done = int(value["seq"]), set(value["done"])

    def unsaved(self) -> str | None:
        """Return the position to save, or None when it was saved already; the caller saves it."""
        if not self._moved:
            return None
        self._moved = False
        return json.dumps({"seq": self._position, "done": sorted(self._done)})

    def due(self) -> float | None:
        """Return when the next turn may have posts (epoch seconds, 0 for at once); None when none wait."""
        return self._due if any(self._waits(post) for post in self.feed.after(self._position)) else None

    def depth(self) -> tuple[int, float | None]:
        """Return how many of the ring's posts have not arrived yet, and the time of the oldest."""
        found = [post for post in self.feed.after(self._position) if self._concerns(post)]
        return len(found), found[0].created_at if found else None

    def waiting(self) -> list[QueuedEvent]:
        """Return what waits and is still in the ring, as events."""
        return [self._event(post) for post in self.feed.after(self._position) if self._waits(post)]

    async def waiting_all(self, now: float) -> list[QueuedEvent]:
        """Return everything that waits, as events; nothing while a delivery that failed waits for its next try."""
        if self._due > now:
            return []
        found = await self.feed.all_after(self._position)
        # What it wrote itself is done with: positions move over it.
        self._done.update(post.seq for post in found if post.author == self.worker)
        return [self._event(post) for post in found if self._waits(post)]

    def take_out(self, ids: Iterable[int]) -> None:
        """They are on their way to the worker; `settle`, `put_back` or `fail` says what became of them."""
        self._out.update(-event_id for event_id in ids)

    def settle(self, ids: Iterable[int]) -> None:
        """They arrived."""
        seqs = {-event_id for event_id in ids}
        self._out -= seqs
        self._done |= seqs
        self._failures = 0
        while self._position + 1 in self._done:
            self._position += 1
            self._done.discard(self._position)
        self._moved = True

    def put_back(self, ids: Iterable[int], *, due: float = 0.0) -> None:
        """They wait again, from `due` on."""
        self._out.difference_update(-event_id for event_id in ids)
        self._due = due

    def fail(self, ids: Sequence[int], now: float, attempts: int, wait: Callable[[int], float]) -> None:
        """Their delivery failed: they wait and are tried again, or are given up after `attempts` failures in a row."""
        failures = self._failures + 1
        if failures >= attempts:
            log.error("posts are given up", extra={"worker": self.worker, "posts": len(ids)})
            self.settle(ids)
            return
        self.put_back(ids, due=now + wait(failures))
        self._failures = failures

    def _concerns(self, post: ChannelPost) -> bool:
        return post.author != self.worker and post.seq not in self._done

    def _waits(self, post: ChannelPost) -> bool:
        return self._concerns(post) and post.seq not in self._out

    def _event(self, post: ChannelPost) -> QueuedEvent:
        if mentions(post.message, self.worker):
            kind, priority, how = Kind.MENTION, Priority.MENTION, "mentioned you"
        else:
            kind, priority, how = Kind.CHANNEL_POST, Priority.REST, "wrote"
        return QueuedEvent(
            id=-post.seq,
            source=Source.MATTERMOST,
            kind=kind,
            priority=priority,
            thread=f"mattermost:{post.root_id or self.feed.channel_id}",
            summary=one_line(f"{post.author} {how} in the task channel: {post.message}", SUMMARY),
            body={"post_id": post.post_id, "channel_id": self.feed.channel_id, "author": post.author},
            observed_at=post.created_at,
            attempts=0,
            handed_out=0,
        )


async def _commit_all(connection: AsyncConnection, batches: Sequence[_Batch]) -> list[Sequence[ChannelPost]]:
    """Number and insert the posts not known yet; return to each batch everything after what its host has."""
    wanted = {row["post_id"]: row for batch in batches for row in batch.posts}
    # One host at a time: a number that is given later is committed later. Locking reads see what is committed, at every
    # level of isolation.
    await connection.execute(select(runs.c.t0).with_for_update())
    known = await connection.scalars(
        select(posts.c.post_id).where(posts.c.post_id.in_(list(wanted))).with_for_update(read=True)
    )
    for post_id in known.all():
        del wanted[post_id]
    newest = select(posts.c.seq).order_by(posts.c.seq.desc()).limit(1).with_for_update(read=True)
    head = await connection.scalar(newest) or 0
    ordered = sorted(wanted.values(), key=lambda row: (row["created_at"], row["post_id"]))
    if ordered:
        await connection.execute(
            insert(posts), [{**row, "seq": head + number} for number, row in enumerate(ordered, start=1)]
        )
    least = min(batch.after for batch in batches)
    rows = await connection.execute(
        select(posts).where(posts.c.seq > least).order_by(posts.c.seq).with_for_update(read=True)
    )
    found = [_post(row) for row in rows]
    return [[post for post in found if post.seq > batch.after] for batch in batches]


_POSTS = Merge(_commit_all)


def _seq(post: ChannelPost) -> int:
    return post.seq


def _post(row: Any) -> ChannelPost:
    return ChannelPost(row.seq, row.post_id, row.author, row.message, row.created_at, row.root_id)


def _row(post: Post, author: str, now: float) -> dict[str, Any]:
    return {
        "post_id": post.id,
        "author": author,
        "message": post.message,
        "created_at": post.create_at / 1000,
        "root_id": post.root_id,
        "queued_at": now,
    }
