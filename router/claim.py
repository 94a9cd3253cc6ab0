"""What one turn takes of all that waits for a worker: what the context of a CLI can hold; the rest comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from router.events import QueuedEvent

CLAIM_LIMIT = 200  # events a turn takes at most; the rest waits for the next one
CLAIM_CHARS = 60_000  # characters of the texts that a turn takes: more than one event only within them
POST_LINES = 30  # threads of the task channel in a turn; the posts of a thread share a line of the prompt


@dataclass(frozen=True, slots=True)
class Claim:
    """What one turn delivers."""

    turn_id: int
    events: tuple[QueuedEvent, ...]
    posts_left: int = 0
    """Posts of the task channel that have no room in this turn and wait for the next one."""


def fitting(waiting: Sequence[QueuedEvent]) -> list[QueuedEvent]:
    """Return the first of the events, as many as a CLI's context can hold beside everything else."""
    sums = accumulate(event.length for event in waiting)
    count = sum(chars <= CLAIM_CHARS for chars in sums)
    return list(waiting[: max(1, count)])


def in_few_lines(posts: Sequence[QueuedEvent]) -> list[QueuedEvent]:
    """Return the posts whose lines a prompt can hold: those that mention the worker first, then the oldest threads."""
    lines = dict.fromkeys((post.priority, post.thread) for post in sorted(posts, key=lambda post: post.priority))
    chosen = set(islice(lines, POST_LINES))
    return [post for post in posts if (post.priority, post.thread) in chosen]
