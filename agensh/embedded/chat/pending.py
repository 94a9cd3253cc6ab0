"""Recently used `pending_post_id`s: a post sent twice under one key within 30 s is made once.

In memory, as on the real server: a restart forgets them.
"""

from __future__ import annotations

from collections import OrderedDict

from agensh.clock import Clock
from agensh.embedded.chat.errors import ChatError

CAPACITY = 25_000
"""Keys kept; the oldest goes first."""
LIFETIME = 30.0
"""Seconds."""


class PendingPosts:
    """Keys of posts, in flight (empty value) or made (the post's id)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def reserve(self, key: str) -> str | None:
        """Take a key; return the id of the post already made under it, ChatError while that one is in flight."""
        found = self._keys.get(key)
        if found is not None and found[0] > self._clock.monotonic():
            if not found[1]:
                raise ChatError(
                    500, "api.post.deduplicate_create_post.pending", "Rejected post since another client is making it."
                )
            return found[1]
        self._set(key, "")
        return None

    def made(self, key: str, post_id: str) -> None:
        """Note which post came of a key."""
        self._set(key, post_id)

    def release(self, key: str) -> None:
        """Give a key back: its post was not made."""
        self._keys.pop(key, None)

    def _set(self, key: str, post_id: str) -> None:
        self._keys[key] = (self._clock.monotonic() + LIFETIME, post_id)
        self._keys.move_to_end(key)
        while len(self._keys) > CAPACITY:
            self._keys.popitem(last=False)
