"""Writing posts: create, edit, delete, pin, react; what each changes and whom it tells.

Contract: `create` returns after the post is on disk. The `posted` event goes out after the commit and may reach a
listener before the sender has its answer; events of concurrent senders need not come in the order of `create_at`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sqlite3
from typing import Any

from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.errors import ChatError, invalid_body
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.model import DIRECT, GROUP, Channel, Post, Reaction, User
from agensh.embedded.chat.settings import POST_MAX_RUNES
from agensh.embedded.chat.shapes import dumps, post_shape, reaction_shape
from agensh.embedded.chat.store import change, put, remove, replace, select

_MENTION = re.compile(r"(?<![a-z0-9_.\-])@([a-z0-9._\-]+)")
EVERYBODY = {"all", "channel", "here"}


def group_name(user_ids: list[str]) -> str:
    """Return the name of a group channel: a digest of its members."""
    return hashlib.sha1("".join(sorted(user_ids)).encode(), usedforsecurity=False).hexdigest()


def check_message(message: str) -> None:
    """ChatError 400 when a message is too long."""
    if len(message) > POST_MAX_RUNES:
        raise ChatError(
            400,
            "model.post.is_valid.message_length.app_error",
            f"Post Message property is longer than the maximum permitted length of {POST_MAX_RUNES} characters.",
        )


def is_system(kind: str) -> bool:
    """Say whether a post's type makes it a system message, which is not counted as unread."""
    return kind.startswith("system_")


def mentioned(chat: Chat, channel: Channel, author: User, message: str) -> list[str]:
    """Return ids of the members whom a message mentions; in a direct channel that is everybody else."""
    members = chat.directory.channel_members[channel.id]
    if channel.type in {DIRECT, GROUP}:
        return [user_id for user_id in members if user_id != author.id]
    found: dict[str, None] = {}
    for name in _MENTION.findall(message.lower()):
        if name.rstrip(".-_") in EVERYBODY:
            if len(members) < chat.settings.max_notifications_per_channel:
                found |= dict.fromkeys(members)
            continue
        user = _named(chat, name)
        if user is not None and user.id in members:
            found[user.id] = None
    found.pop(author.id, None)
    return list(found)


def _named(chat: Chat, name: str) -> User | None:
    while name:
        user = chat.directory.users_by_name.get(name)
        if user is not None or name[-1] not in ".-_":
            return user
        name = name[:-1]
    return None


async def create(
    chat: Chat,
    author: User,
    channel: Channel,
    message: str,
    *,
    root_id: str = "",
    kind: str = "",
    props: dict[str, Any] | None = None,
    pending_post_id: str = "",
    create_at: int = 0,
    set_online: bool = True,
    silent: bool = False,
) -> Post:
    """Write a post and tell the channel; a silent one mentions nobody."""
    now = create_at or chat.now()
    post = Post(
        id=new_id(),
        create_at=now,
        update_at=now,
        user_id=author.id,
        channel_id=channel.id,
        message=message,
        root_id=root_id,
        type=kind,
        props=props or {},
        pending_post_id=pending_post_id,
    )
    counts = not is_system(kind)
    notified = mentioned(chat, channel, author, message) if counts and not silent else []

    def save(connection: sqlite3.Connection) -> None:
        if root_id:
            _check_root(connection, root_id, channel.id)
            connection.execute("UPDATE posts SET update_at = max(update_at, ?) WHERE id = ?", (now, root_id))
            post.reply_count = connection.execute(
                "SELECT count(*) + 1 FROM posts WHERE root_id = ? AND delete_at = 0", (root_id,)
            ).fetchone()[0]
        put(connection, post)
        _count(connection, post, counts, notified)

    await chat.store.write(save)
    _count_in_memory(chat, channel, post, counts, notified)
    data: dict[str, Any] = {
        "channel_display_name": channel.display_name or f"@{author.username}",
        "channel_name": channel.name,
        "channel_type": channel.type,
        "post": dumps(post_shape(post)),
        "sender_name": "System" if is_system(kind) else f"@{author.username}",
        "set_online": set_online,
        "team_id": channel.team_id,
    }
    extra = {user_id: {"mentions": dumps([user_id])} for user_id in notified}
    chat.hub.publish("posted", data, channel_id=channel.id, extra=extra)
    return post


def _check_root(connection: sqlite3.Connection, root_id: str, channel_id: str) -> None:
    root = connection.execute("SELECT channel_id, root_id, delete_at FROM posts WHERE id = ?", (root_id,)).fetchone()
    if root is None or root[2]:
        raise ChatError(400, "api.post.create_post.root_id.app_error", "Invalid RootId parameter.")
    if root[0] != channel_id:
        raise ChatError(
            400, "api.post.create_post.channel_root_id.app_error", "Invalid ChannelId for RootId parameter."
        )
    if root[1]:
        raise ChatError(400, "api.post.create_post.root_id.app_error", "Invalid RootId parameter.")


def _count(connection: sqlite3.Connection, post: Post, counts: bool, notified: list[str]) -> None:
    is_root = not post.root_id
    connection.execute(
        "UPDATE channels SET last_post_at = max(last_post_at, ?), last_root_post_at = max(last_root_post_at, ?), "
        "total_msg_count = total_msg_count + ?, total_msg_count_root = total_msg_count_root + ? WHERE id = ?",
        (
            post.create_at,
            post.create_at if is_root else 0,
            int(counts),
            int(counts and is_root),
            post.channel_id,
        ),
    )
    if not counts:
        return
    connection.execute(
        "UPDATE channel_members SET last_viewed_at = max(last_viewed_at, ?), "
        "mention_count = 0, mention_count_root = 0, "
        "msg_count = (SELECT total_msg_count FROM channels WHERE id = channel_id), "
        "msg_count_root = (SELECT total_msg_count_root FROM channels WHERE id = channel_id) "
        "WHERE channel_id = ? AND user_id = ?",
        (post.create_at, post.channel_id, post.user_id),
    )
    connection.executemany(
        "UPDATE channel_members SET mention_count = mention_count + 1, mention_count_root = mention_count_root + ? "
        "WHERE channel_id = ? AND user_id = ?",
        [(int(is_root), post.channel_id, user_id) for user_id in notified],
    )


def _count_in_memory(chat: Chat, channel: Channel, post: Post, counts: bool, notified: list[str]) -> None:
    is_root = not post.root_id
    channel.last_post_at = max(channel.last_post_at, post.create_at)
    if is_root:
        channel.last_root_post_at = max(channel.last_root_post_at, post.create_at)
    if not counts:
        return
    channel.total_msg_count += 1
    channel.total_msg_count_root += is_root
    members = chat.directory.channel_members[channel.id]
    author = members.get(post.user_id)
    if author is not None:
        author.last_viewed_at = max(author.last_viewed_at, post.create_at)
        author.msg_count, author.msg_count_root = channel.total_msg_count, channel.total_msg_count_root
        author.mention_count = author.mention_count_root = 0
    for user_id in notified:
        if user_id in members:
            members[user_id].mention_count += 1
            members[user_id].mention_count_root += is_root


async def edit(chat: Chat, post: Post, **changes: Any) -> Post:
    """Change a post; the former text stays as a deleted row that `since` shows."""
    now = chat.now()
    changed = dataclasses.replace(post, update_at=now, edit_at=now, **changes)
    check_message(changed.message)
    former = dataclasses.replace(post, id=new_id(), original_id=post.id, update_at=now, delete_at=now)

    def save(connection: sqlite3.Connection) -> None:
        put(connection, former)
        change(connection, changed, update_at=now, edit_at=now, **changes)

    await chat.store.write(save)
    _tell(chat, "post_edited", changed)
    return changed


async def delete(chat: Chat, post: Post, by: User) -> None:
    """Delete a post and, if it is a root, its thread; listeners get the post as it was."""
    now = chat.now()

    def save(connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE posts SET delete_at = ?, update_at = ? WHERE delete_at = 0 AND (id = ? OR root_id = ?)",
            (now, now, post.id, post.id),
        )

    await chat.store.write(save)
    chat.hub.publish("post_deleted", {"delete_by": by.id, "post": dumps(post_shape(post))}, channel_id=post.channel_id)


async def pin(chat: Chat, post: Post, pinned: bool) -> Post:
    """Pin or unpin a post."""
    changed = dataclasses.replace(post, is_pinned=pinned, update_at=chat.now())
    times = {"is_pinned": pinned, "update_at": changed.update_at}
    await chat.store.write(lambda connection: change(connection, changed, **times))
    _tell(chat, "post_edited", changed)
    return changed


async def react(chat: Chat, post: Post, user: User, emoji: str) -> Reaction:
    """Put an emoji on a post."""
    if not re.fullmatch(r"[a-zA-Z0-9\-+_]{1,64}", emoji):
        raise invalid_body("emoji_name")
    reaction = Reaction(user.id, post.id, emoji, chat.now())

    def save(connection: sqlite3.Connection) -> None:
        replace(connection, reaction)
        connection.execute(
            "UPDATE posts SET has_reactions = 1, update_at = ? WHERE id = ?", (reaction.create_at, post.id)
        )

    await chat.store.write(save)
    shape = dumps(reaction_shape(reaction, post.channel_id))
    chat.hub.publish("reaction_added", {"reaction": shape}, channel_id=post.channel_id)
    return reaction


async def unreact(chat: Chat, post: Post, user: User, emoji: str) -> None:
    """Take an emoji off a post."""
    reaction = Reaction(user.id, post.id, emoji, 0)

    def save(connection: sqlite3.Connection) -> None:
        remove(connection, reaction)
        left = bool(select(connection, Reaction, "WHERE post_id = ? LIMIT 1", (post.id,)))
        connection.execute(
            "UPDATE posts SET has_reactions = ?, update_at = ? WHERE id = ?", (int(left), chat.now(), post.id)
        )

    await chat.store.write(save)
    shape = dumps(reaction_shape(reaction, post.channel_id))
    chat.hub.publish("reaction_removed", {"reaction": shape}, channel_id=post.channel_id)


def _tell(chat: Chat, name: str, post: Post) -> None:
    chat.hub.publish(name, {"post": dumps(post_shape(post))}, channel_id=post.channel_id)
