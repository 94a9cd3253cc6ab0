"""Listens to the chat: the websocket brings posts, REST brings what it missed.

Every post becomes one event, named by its id, whichever way it came. A connection that is not a resumed one, a jump in
its numbering, or more posts than the inbox holds makes the listener read all its channels back, each from an anchor:
the newest committed post that is some seconds older than the newest one or than now, because posts become visible in
another order than that of their times (now by the chat's clock: our own may be an hour off). The anchor is stored with
the events. Edits and deletions are no events.

Reading back must not cost what a channel ever held, for every worker at once: a channel in which nothing was posted
since it was read is left alone, and the beginning of a team's channel is read once for all workers of a host. The task
channel is one place for all of them (`router/posts.py`): what any of them has heard, whoever comes to it first brings.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from agensh.clients.mattermost import Channel, MattermostClient, Post
from agensh.clients.mattermost_ws import ChatSignal, MattermostSocket
from agensh.clock import Clock
from agensh.errors import ServiceError
from agensh.text import one_line
from router.events import EventSink, Kind, NewEvent, Priority, Source
from router.listeners.base import Listener
from router.listeners.mentions import mentions
from router.posts import FIRST_READING, OVERLAP_MS, SETTLED_MS, PostFeed

log = logging.getLogger(__name__)

REMEMBERED = 200  # posts a channel, candidates for the anchor
INBOX = 4096  # posts
MOST_COMMITTED = 4096  # ids
BATCH = 200  # posts a transaction
SUMMARY = 400  # characters
BEGINNING = "-"
"""Cursor of a channel that is known and has no anchor yet."""
_DIRECT = frozenset({"D", "G"})
_GONE = frozenset({403, 404})


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a team's channel held up to a settled post; the same for all its members."""

    posts: tuple[Post, ...]
    """Without those of the system."""
    anchor: Post


@dataclass(slots=True)
class _Place:
    """One channel: what it is, and how far it was read."""

    id: str
    direct: bool
    name: str
    anchor: str = ""
    """Id of the post after which the channel is read back; empty: from its beginning."""
    stored: str | None = None
    """The cursor's committed value; None when the channel has none yet."""
    newest: int = 0
    recent: tuple[tuple[int, str], ...] = ()
    """Time and id of committed posts, candidates for the anchor."""
    read_at: tuple[int, int] | None = None
    """The channel's newest time and count of posts, as last read back and pushed since."""

    def advanced(self, posts: Iterable[Post], now: float) -> tuple[tuple[tuple[int, str], ...], str]:
        """Return `recent` and `anchor` as they will be once `posts` are committed, `now` by the chat's clock."""
        recent = sorted({*self.recent, *((post.create_at, post.id) for post in posts)})
        if not recent:
            return (), self.anchor
        settled = max(recent[-1][0] - OVERLAP_MS, int(now * 1000) - SETTLED_MS)
        old = [entry for entry in recent if entry[0] <= settled]
        if not old:
            return tuple(recent[-REMEMBERED:]), self.anchor
        return tuple(entry for entry in recent[-REMEMBERED:] if entry >= old[-1]), old[-1][1]


class MattermostListener(Listener[ChatSignal]):
    """The chat as a source of one worker's events."""

    source_name = "mattermost"

    def __init__(
        self,
        worker: str,
        client: MattermostClient,
        socket: MattermostSocket,
        sink: EventSink,
        clock: Clock,
        *,
        sweep_every: float = 300.0,
        reconnect_first: float = 1.0,
        reconnect_longest: float = 60.0,
        names: dict[str, str] | None = None,
        beginnings: dict[str, Beginning] | None = None,
        posts: PostFeed | None = None,
    ) -> None:
        """`names` (account id → name) and `beginnings` (by channel id) may be shared by the listeners of a process.

        `posts` takes those of the task channel; without it they are events of the sink as those of any other channel.
        """
        super().__init__(
            worker,
            socket,
            sink,
            clock,
            sweep_every=sweep_every,
            reconnect_first=reconnect_first,
            reconnect_longest=reconnect_longest,
        )
        self.client = client
        self._names = {} if names is None else names
        self._beginnings = {} if beginnings is None else beginnings
        self._posts = posts
        self._inbox: deque[ChatSignal] = deque()
        self._places: dict[str, _Place] = {}
        self._behind = True
        """Whether all channels must be read back before anything else."""
        self._catching_up = True
        """Whether something may not have been read yet that is older than what is pushed now."""
        self._unread_channels: dict[str, str] = {}
        """Direct channels that were added, and who opened them."""
        self._committed: dict[str, None] = {}
        """Ids of posts that were put, newest last: saves the sink most repetitions."""

    def on_connect(self) -> None:
        """Whether the connection was resumed is told by its first signal."""

    def on_signal(self, signal: ChatSignal) -> bool:
        match signal.kind:
            case "posted":
                # What was missed comes first: what is heard meanwhile waits in the listener's own inbox.
                if self._posts is not None and _is_in(signal.post, self._posts) and not self._catching_up:
                    return self._heard(self._posts, signal.post)
                if len(self._inbox) >= INBOX:
                    log.warning("chat inbox is full", extra={"worker": self.worker, "dropped": len(self._inbox)})
                    self._inbox.clear()
                    self._behind = self._catching_up = True
                else:
                    self._inbox.append(signal)
            case "fresh" | "gap":
                self._behind = self._catching_up = True
            case "direct_added":
                self._unread_channels[signal.channel_id] = signal.creator_id
            case "dead_session":
                raise ServiceError("The chat", 401, "the token of this account is not valid any more")
            case "resumed":
                return False
        return True

    def _heard(self, feed: PostFeed, post: Post) -> bool:
        if not feed.heard(post):
            return False  # another worker of the host has heard it
        if feed.backlog > INBOX:
            log.warning("too many posts wait", extra={"worker": self.worker, "dropped": feed.backlog})
            feed.forget_pushed()
            self._behind = self._catching_up = True
        return True

    async def work(self, *, sweep: bool) -> None:
        while True:
            if self._behind or sweep:
                # First of all: posts that came after a loss must not move an anchor beyond what was lost.
                self._behind = sweep = False
                self._catching_up = True
                try:
                    await self._read_back(await self.client.my_channels())
                except BaseException:
                    self._behind = True
                    raise
                self._catching_up = self._behind
            elif self._posts is not None and self._posts.backlog:
                await self._bring(self._posts.pushed(BATCH))
            elif self._unread_channels:
                channel_id, creator_id = next(iter(self._unread_channels.items()))
                if creator_id != (await self.client.me()).id:
                    await self._read_direct(channel_id)
                elif channel_id not in self._places:
                    # Opened by this worker in order to write: what the other answers comes as any post does.
                    await self._add_place(_Place(channel_id, True, ""))
                self._unread_channels.pop(channel_id, None)
            elif self._inbox:
                batch = [self._inbox[index] for index in range(min(BATCH, len(self._inbox)))]
                await self._take(batch)
                # Only what was committed leaves the inbox; `on_signal` may have emptied it meanwhile.
                for signal in batch:
                    if self._inbox and self._inbox[0] is signal:
                        self._inbox.popleft()
            else:
                return

    async def _take(self, batch: Sequence[ChatSignal]) -> None:
        by_channel: dict[str, list[Post]] = {}
        for signal in batch:
            post = signal.post
            if post is None:
                continue
            if self._posts is not None and _is_in(post, self._posts):
                # Heard while this listener caught up; now it is in its place among what others have heard.
                self._posts.heard(post)
                continue
            known = post.channel_id in self._places
            direct = signal.channel_type in _DIRECT
            read = self._read_direct if direct else self._read_channel
            if not known and not await read(post.channel_id):
                await self._add_place(_Place(post.channel_id, direct, signal.channel_name))
            by_channel.setdefault(post.channel_id, []).append(post)
        for channel_id, posts in by_channel.items():
            await self._commit(self._places[channel_id], posts)

    async def _read_channel(self, channel_id: str) -> bool:
        """Read one channel back; False when this account may not see it (any more, or not yet)."""
        try:
            channel = await self.client.channel(channel_id)
        except ServiceError as error:
            if error.status not in _GONE:
                raise
            return False
        await self._read_back([channel])
        return channel_id in self._places

    async def _read_direct(self, channel_id: str) -> bool:
        """Read a direct channel back; False as above. All that is to be known of it are its posts."""
        await self._read_back([Channel(channel_id, "", "D", "", "", 0)])
        return channel_id in self._places

    async def _read_back(self, channels: Sequence[Channel]) -> None:
        for channel in channels:
            try:
                await self._read_back_one(channel)
            except ServiceError as error:
                if error.status not in _GONE:
                    raise
                log.info("channel is gone", extra={"worker": self.worker, "channel": channel.id})

    async def _bring(self, posts: Sequence[Post]) -> None:
        """Bring posts of the task channel to the host's feed of them."""
        assert self._posts is not None, "there is such a channel"
        await self._learn_names({post.user_id for post in posts})
        await self._posts.take(posts, self._names)

    async def _read_back_task_channel(self, feed: PostFeed, channel: Channel) -> None:
        """Read the task channel back, for all workers of the host, where something was posted since it was read."""
        state = (channel.last_post_at, channel.total_msg_count)
        async with feed.reading:
            if feed.read_at is not None and feed.read_at >= state:
                return
            anchor = feed.anchor(self.client.server_time())
            posts = await self.client.posts_after(channel.id, anchor) if anchor else []
            if not posts and channel.last_post_at > feed.newest_at():
                # There is no anchor yet, or the one there was is gone for good: that is answered with nothing at all.
                posts = await self.client.all_posts(channel.id)
            if not feed.head:
                # Who is told of a channel's past is told the newest of it, and mentions however old.
                told = {post.id for post in posts[-FIRST_READING:]}
                posts = [post for post in posts if post.id in told or "@" in post.message]
            for start in range(0, len(posts), BATCH):
                await self._bring(posts[start : start + BATCH])
            feed.read_at = state if any(state) else None

    async def _read_back_one(self, channel: Channel) -> None:
        if self._posts is not None and channel.id == self._posts.channel_id:
            await self._read_back_task_channel(self._posts, channel)
            return
        place = self._places.get(channel.id)
        if place is None:
            place = await self._add_place(_Place(channel.id, channel.type in _DIRECT, channel.name))
        state = (channel.last_post_at, channel.total_msg_count)
        if place.read_at == state:
            return
        if place.stored is None and not place.direct:
            posts = await self._first_posts(channel)
        elif place.anchor:
            posts = await self.client.posts_after(channel.id, place.anchor)
            if not posts and channel.last_post_at > place.newest and not await self._ends_with(channel, place.anchor):
                # An anchor that was removed for good is answered with nothing at all.
                posts = await self.client.all_posts(channel.id)
        else:
            posts = await self.client.all_posts(channel.id)
        told = None
        if place.stored is None and not place.direct:
            told = {post.id for post in posts[-FIRST_READING:]}
        for start in range(0, max(1, len(posts)), BATCH):
            await self._commit(place, posts[start : start + BATCH], told)
        # Of a channel that was not asked for, the state is not known: the next reading looks again.
        place.read_at = state if any(state) else None

    async def _ends_with(self, channel: Channel, anchor: str) -> bool:
        """Say whether the anchor is the newest post: nothing comes after it then, as after one that is gone."""
        return [post.id for post in await self.client.posts(channel.id, limit=1)] == [anchor]

    async def _first_posts(self, channel: Channel) -> list[Post]:
        """Return all posts of a team's channel but the system's; what is settled of them was read by one worker."""
        beginning = self._beginnings.get(channel.id)
        if beginning is not None:
            return [*beginning.posts, beginning.anchor, *await self.client.posts_after(channel.id, beginning.anchor.id)]
        posts = await self.client.all_posts(channel.id)
        settled = self.client.server_time() * 1000 - SETTLED_MS
        old = [post for post in posts if post.create_at <= settled]
        if not old:
            return posts
        own = tuple(post for post in old[:-1] if not post.type.startswith("system_"))
        self._beginnings[channel.id] = Beginning(own, old[-1])
        return [*own, *posts[len(old) - 1 :]]

    async def _add_place(self, place: _Place) -> _Place:
        place.stored = await self.sink.cursor(_cursor(place.id))
        place.anchor = "" if place.stored in {None, BEGINNING} else place.stored or ""
        self._places[place.id] = place
        return place

    async def _commit(self, place: _Place, posts: Sequence[Post], told: set[str] | None = None) -> None:
        """Put the posts' events and the channel's anchor. With `told`, only those and mentions become events."""
        me = (await self.client.me()).id
        news = [
            post
            for post in posts
            if post.user_id != me
            and not post.type.startswith("system_")
            and post.id not in self._committed
            and (told is None or post.id in told or mentions(post.message, self.worker))
        ]
        await self._learn_names({post.user_id for post in news})
        recent, anchor = place.advanced(posts, self.client.server_time())
        value = anchor or BEGINNING
        if news or value != place.stored:
            events = [self._event(place, post) for post in news]
            await self.sink.put(events, {_cursor(place.id): value} if value != place.stored else {})
        place.recent, place.anchor, place.stored = recent, anchor, value
        place.newest = max([place.newest, *(post.create_at for post in posts)])
        if place.read_at is not None:
            # What was pushed need not be read back: at the next sweep the channel has exactly these more.
            pushed = [post for post in posts if post.id not in self._committed and not post.type.startswith("system_")]
            place.read_at = (max(place.read_at[0], place.newest), place.read_at[1] + len(pushed))
        self._committed.update((post.id, None) for post in posts)
        while len(self._committed) > MOST_COMMITTED:
            del self._committed[next(iter(self._committed))]

    async def _learn_names(self, ids: set[str]) -> None:
        unknown = {user_id for user_id in ids if user_id not in self._names}
        if unknown:
            self._names.update((user.id, user.username) for user in await self.client.users_by_ids(unknown))

    def _event(self, place: _Place, post: Post) -> NewEvent:
        author = self._names.get(post.user_id, post.user_id)
        if place.direct:
            kind, priority, how = Kind.DIRECT_MESSAGE, Priority.DIRECT, "wrote to you"
        elif mentions(post.message, self.worker):
            kind, priority, how = Kind.MENTION, Priority.MENTION, f"mentioned you in the channel {place.name}"
        else:
            kind, priority, how = Kind.CHANNEL_POST, Priority.REST, f"wrote in the channel {place.name}"
        return NewEvent(
            source=Source.MATTERMOST,
            kind=kind,
            dedupe_key=f"mattermost:post:{post.id}",
            summary=one_line(f"{author} {how}: {post.message}", SUMMARY),
            observed_at=post.create_at / 1000,
            thread=f"mattermost:{post.root_id or post.channel_id}",
            priority=priority,
            body={
                "post_id": post.id,
                "channel_id": post.channel_id,
                "root_id": post.root_id,
                "author": author,
                "author_id": post.user_id,
                # Meant for this worker alone, so it is shown whole; a summary is cut.
                **({"text": post.message} if place.direct else {}),
            },
        )


def _is_in(post: Post | None, feed: PostFeed) -> TypeGuard[Post]:
    return post is not None and post.channel_id == feed.channel_id


def _cursor(channel_id: str) -> str:
    return f"mattermost:channel:{channel_id}"
