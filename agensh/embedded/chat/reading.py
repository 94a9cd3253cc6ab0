"""Reading posts: pages, `after` and `before`, `since`, threads.

`after` and `before` compare `create_at` strictly, so siblings of the anchor's millisecond are skipped, and list live
posts only. `since` compares `update_at` strictly, takes an arbitrary thousand beyond that many, and shows deleted posts
(blanked) and former texts. Both are the real server's rules; catch-up belongs on `after`.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from agensh.embedded.chat.model import Post
from agensh.embedded.chat.shapes import post_shape
from agensh.embedded.chat.store import select

SINCE_LIMIT = 1000
_ROOTS = {False: "", True: " AND root_id = ''"}
"""What `collapsedThreads` adds to a condition."""


def one(connection: sqlite3.Connection, post_id: str) -> Post | None:
    """Return a post, deleted ones included."""
    found = select(connection, Post, "WHERE id = ?", (post_id,))
    _count_replies(connection, found)
    return found[0] if found else None


def several(connection: sqlite3.Connection, ids: list[str]) -> list[Post]:
    """Return the live posts of these ids, newest first."""
    marks = ", ".join("?" * len(ids))
    found = select(connection, Post, f"WHERE id IN ({marks}) AND delete_at = 0 ORDER BY create_at DESC", ids)
    _count_replies(connection, found)
    return found


def page(
    connection: sqlite3.Connection,
    channel_id: str,
    offset: int,
    size: int,
    *,
    threads: bool = True,
    roots: bool = False,
) -> dict[str, Any]:
    """Return the newest live posts, a page of them; `roots` leaves replies out."""
    found = select(
        connection,
        Post,
        f"WHERE channel_id = ? AND delete_at = 0{_ROOTS[roots]} ORDER BY create_at DESC LIMIT ? OFFSET ?",
        (channel_id, size, offset),
    )
    return _listing(connection, channel_id, found, threads=threads and not roots, older=True, newer=offset > 0)


def around(
    connection: sqlite3.Connection,
    channel_id: str,
    anchor: str,
    offset: int,
    size: int,
    *,
    after: bool,
    threads: bool = True,
    roots: bool = False,
) -> dict[str, Any]:
    """Return live posts created strictly after (or before) the anchor; nothing when the anchor is gone for good."""
    sign, order = (">", "ASC") if after else ("<", "DESC")
    found = select(
        connection,
        Post,
        f"WHERE create_at {sign} (SELECT anchor.create_at FROM posts AS anchor WHERE anchor.id = ?) "
        f"AND channel_id = ? AND delete_at = 0{_ROOTS[roots]} ORDER BY create_at {order} LIMIT ? OFFSET ?",
        (anchor, channel_id, size, offset),
    )
    if after:
        found.reverse()
    return _listing(connection, channel_id, found, threads=threads and not roots, older=True, newer=True)


def since(connection: sqlite3.Connection, channel_id: str, time: int, *, roots: bool = False) -> dict[str, Any]:
    """Return what changed after `time` (ms): at most a thousand rows, which ones is left to chance."""
    found = select(
        connection,
        Post,
        # Ordering by the random key is what makes the limit arbitrary: a client that counts on an order must fail.
        f"WHERE channel_id = ? AND update_at > ?{_ROOTS[roots]} ORDER BY id LIMIT ?",
        (channel_id, time, SINCE_LIMIT),
    )
    found.sort(key=lambda post: post.create_at, reverse=True)
    missing = {post.root_id for post in found if post.root_id} - {post.id for post in found}
    with_roots = found + (_by_ids(connection, sorted(missing)) if missing else [])
    for post in found:
        if post.delete_at and not post.original_id:
            post.message, post.props = "", {}
    _count_replies(connection, with_roots)
    return _shape(found, with_roots)


def thread(connection: sqlite3.Connection, post: Post) -> dict[str, Any]:
    """Return a whole thread, by any of its posts."""
    root = post.root_id or post.id
    found = select(
        connection,
        Post,
        "WHERE (id = ? OR root_id = ?) AND delete_at = 0 ORDER BY create_at DESC",
        (root, root),
    )
    _count_replies(connection, found)
    return _shape(found, found)


def pinned(connection: sqlite3.Connection, channel_id: str) -> dict[str, Any]:
    """Return the pinned posts of a channel."""
    found = select(
        connection,
        Post,
        "WHERE channel_id = ? AND delete_at = 0 AND is_pinned = 1 ORDER BY create_at DESC",
        (channel_id,),
    )
    _count_replies(connection, found)
    return _shape(found, found)


def unread(connection: sqlite3.Connection, channel_id: str, viewed_at: int, before: int, after: int) -> dict[str, Any]:
    """Return posts on both sides of the oldest unread one."""
    newer = select(
        connection,
        Post,
        "WHERE channel_id = ? AND delete_at = 0 AND create_at > ? ORDER BY create_at ASC LIMIT ?",
        (channel_id, viewed_at, after),
    )
    older = select(
        connection,
        Post,
        "WHERE channel_id = ? AND delete_at = 0 AND create_at <= ? ORDER BY create_at DESC LIMIT ?",
        (channel_id, viewed_at, before),
    )
    return _listing(connection, channel_id, newer[::-1] + older, threads=True, older=True, newer=True)


def search(
    connection: sqlite3.Connection, channel_ids: list[str], terms: list[str], offset: int, size: int
) -> list[Post]:
    """Return live posts that contain every term, newest first."""
    marks = ", ".join("?" * len(channel_ids))
    where = " AND ".join("instr(lower(message), lower(?)) > 0" for _ in terms)
    found = select(
        connection,
        Post,
        f"WHERE channel_id IN ({marks}) AND delete_at = 0 AND type = '' AND {where} "
        "ORDER BY create_at DESC LIMIT ? OFFSET ?",
        (*channel_ids, *terms, size, offset),
    )
    _count_replies(connection, found)
    return found


def shape_list(found: list[Post]) -> dict[str, Any]:
    """Return posts as a list of posts, in their order."""
    return _shape(found, found)


def _listing(
    connection: sqlite3.Connection, channel_id: str, found: list[Post], *, threads: bool, older: bool, newer: bool
) -> dict[str, Any]:
    everything = found
    if threads:
        everything = found + _threads(connection, found)
    _count_replies(connection, everything)
    shape = _shape(found, everything)
    if found and older:
        shape["prev_post_id"] = _neighbour(connection, channel_id, found[-1], "<", "DESC")
    if found and newer:
        shape["next_post_id"] = _neighbour(connection, channel_id, found[0], ">", "ASC")
    return shape


def _threads(connection: sqlite3.Connection, found: list[Post]) -> list[Post]:
    """Return the other posts of every thread that a listing touches."""
    known = {post.id for post in found}
    roots = sorted({post.root_id or post.id for post in found})
    if not roots:
        return []
    marks = ", ".join("?" * len(roots))
    others = select(
        connection,
        Post,
        f"WHERE (id IN ({marks}) OR (root_id != '' AND root_id IN ({marks}))) AND delete_at = 0",
        roots + roots,
    )
    return [post for post in others if post.id not in known]


def _by_ids(connection: sqlite3.Connection, ids: list[str]) -> list[Post]:
    return select(connection, Post, f"WHERE id IN ({', '.join('?' * len(ids))})", ids)


def _neighbour(connection: sqlite3.Connection, channel_id: str, post: Post, sign: str, order: str) -> str:
    found = connection.execute(
        f"SELECT id FROM posts WHERE channel_id = ? AND delete_at = 0 AND create_at {sign} ? "
        f"ORDER BY create_at {order} LIMIT 1",
        (channel_id, post.create_at),
    ).fetchone()
    return str(found[0]) if found else ""


def _count_replies(connection: sqlite3.Connection, posts: list[Post]) -> None:
    roots = sorted({post.root_id or post.id for post in posts})
    if not roots:
        return
    counts = dict(
        connection.execute(
            f"SELECT root_id, count(*) FROM posts WHERE root_id != '' AND root_id IN ({', '.join('?' * len(roots))}) "
            "AND delete_at = 0 GROUP BY root_id",
            roots,
        ).fetchall()
    )
    for post in posts:
        post.reply_count = counts.get(post.root_id or post.id, 0)


def _shape(order: list[Post], posts: list[Post]) -> dict[str, Any]:
    return {
        "order": [post.id for post in order],
        "posts": {post.id: post_shape(post) for post in posts},
        "next_post_id": "",
        "prev_post_id": "",
        "has_next": False,
        "first_inaccessible_post_time": 0,
    }
