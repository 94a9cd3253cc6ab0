"""Typed client of the chat (Mattermost's REST API).

A post is sent once: every post carries a `pending_post_id`, under which the server itself drops a repetition for some
time, and after a failure the channel is read back before the post is sent again. Reading what was missed goes by
`after=<post id>`, never by `since`, which may leave posts out.
"""

from __future__ import annotations

import uuid
from typing import Any

from agensh.clients.http import backoff, read_json, unsure
from agensh.clients.mattermost_admin import AdminCalls
from agensh.clients.mattermost_core import MOST_PAGES, PAGE, SERVICE
from agensh.clients.mattermost_models import KEY_PROP, Channel, ChatUser, Post, ServerLimits, Team, UserToken
from agensh.errors import AgenshError, ServiceError

__all__ = ["Channel", "ChatUser", "MattermostClient", "Post", "ServerLimits", "Team", "UserToken"]

MESSAGE_LIMIT = 16_383  # runes, the schema of v11
POST_PATIENCE = 60.0  # seconds
_IN_FLIGHT = "deduplicate_create_post.pending"


class MessageTooLong(AgenshError):
    """Shorten the message."""

    def __init__(self, length: int) -> None:
        super().__init__(
            f"The message has {length} characters; at most {MESSAGE_LIMIT} fit. Shorten it, or commit the text as a "
            "file and name the file."
        )


class MattermostClient(AdminCalls):
    """The chat as one account sees it."""

    _direct: dict[str, Channel] | None = None

    async def post(self, channel_id: str, message: str, *, root_id: str = "", key: str | None = None) -> Post:
        """Post a message, once.

        `key` names the attempt: whoever repeats the call within about 30 seconds with the same key gets the first post.
        MessageTooLong over 16,383 characters.
        """
        if len(message) > MESSAGE_LIMIT:
            raise MessageTooLong(len(message))
        me = await self.me()
        key = key or uuid.uuid4().hex
        body = {
            "channel_id": channel_id,
            "message": message,
            "root_id": root_id,
            "pending_post_id": f"{me.id}:{key}",
            "props": {KEY_PROP: key},
        }
        until = self.clock.monotonic() + POST_PATIENCE
        attempt = 0
        while True:
            try:
                # The server forgets its keys after 30 seconds, and at a restart at once: so the channel is asked first.
                found = await self.find_post(channel_id, key) if attempt else None
                return found or Post.of(read_json(await self.request("POST", "/posts", json=body), SERVICE))
            except ServiceError as error:
                again = unsure(error) or _IN_FLIGHT in error.reason
                if not again or self.clock.monotonic() > until:
                    raise
            await self.clock.sleep(backoff(attempt, first=0.5))
            attempt += 1

    async def find_post(self, channel_id: str, key: str) -> Post | None:
        """Return this account's newest post of that key among the channel's last 200, or None."""
        me = await self.me()
        for post in reversed(await self.posts(channel_id, limit=PAGE)):
            if post.user_id == me.id and key and (post.key == key or post.pending_post_id == f"{me.id}:{key}"):
                return post
        return None

    async def direct_channel(self, other_user_id: str) -> Channel:
        """Return the direct channel with another account; it is made when it does not exist."""
        if self._direct is None:
            self._direct = {}
        if other_user_id not in self._direct:
            body = [(await self.me()).id, other_user_id]
            # Idempotent on the server; a race between both sides may answer 5xx once.
            response = await self.request("POST", "/channels/direct", json=body, idempotent=True)
            self._direct[other_user_id] = Channel.of(read_json(response, SERVICE))
        return self._direct[other_user_id]

    async def direct_message(self, username: str, message: str, *, key: str | None = None) -> Post:
        """Write to another account by its name; ServiceError 404 when there is none of that name."""
        other = await self.user_by_name(username)
        channel = await self.direct_channel(other.id)
        return await self.post(channel.id, message, key=key)

    async def posts(self, channel_id: str, *, limit: int = 60) -> list[Post]:
        """Return a channel's newest posts, oldest of them first."""
        found: list[Post] = []
        # The server caches pages of 30 and 60, and a cached page may be stale.
        size = min(PAGE, limit + 1 if limit in {30, 60} else limit)
        for page in range(MOST_PAGES):
            got = await self._post_page(channel_id, {"page": page, "per_page": size})
            found += got
            if len(got) < size or len(found) >= limit:
                break
        return _ascending(found)[-limit:]

    async def all_posts(self, channel_id: str) -> list[Post]:
        """Return every post of a channel, oldest first."""
        return await self.posts(channel_id, limit=MOST_PAGES * PAGE)

    async def posts_after(self, channel_id: str, post_id: str) -> list[Post]:
        """Return all posts created after another one (strictly: not those of its own millisecond), oldest first.

        Empty when that post is gone for good.
        """
        found: list[Post] = []
        for page in range(MOST_PAGES):
            got = await self._post_page(channel_id, {"after": post_id, "page": page, "per_page": PAGE})
            found += got
            if len(got) < PAGE:
                break
        return _ascending(found)

    async def _post_page(self, channel_id: str, params: dict[str, Any]) -> list[Post]:
        value = await self.get(f"/channels/{channel_id}/posts", params=params)
        posts = value.get("posts") or {}
        return [Post.of(posts[post_id]) for post_id in value.get("order") or () if post_id in posts]


def _ascending(posts: list[Post]) -> list[Post]:
    by_id = {post.id: post for post in posts}
    return sorted(by_id.values(), key=lambda post: (post.create_at, post.id))
