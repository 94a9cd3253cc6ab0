"""Teams, channels, and joining them."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from agensh.embedded.chat import posting
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.errors import ChatError, invalid_body, no_such_user
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.model import (
    DIRECT,
    GROUP,
    OPEN,
    PRIVATE,
    Channel,
    ChannelMember,
    Team,
    TeamMember,
    User,
)
from agensh.embedded.chat.shapes import channel_shape, dumps, team_member_shape
from agensh.embedded.chat.store import change, put, remove, replace

DEFAULT_CHANNELS = {"town-square": "Town Square", "off-topic": "Off-Topic"}
_TEAM_NAME = re.compile(r"[a-z0-9][a-z0-9\-]*[a-z0-9]")
_CHANNEL_NAME = re.compile(r"[a-z0-9]([a-z0-9\-_]*[a-z0-9])?")


async def create_team(chat: Chat, creator: User, name: str, display_name: str, kind: str, **more: Any) -> Team:
    """Create a team with its two default channels; the creator is its first member and admin."""
    name = name.strip().lower()
    if kind not in {OPEN, "I"}:
        raise ChatError(400, "model.team.is_valid.type.app_error", "Invalid type.")
    if not 2 <= len(name) <= 64 or not _TEAM_NAME.fullmatch(name):
        raise ChatError(
            400,
            "model.team.is_valid.characters.app_error",
            "Name must be 2 or more lowercase alphanumeric characters.",
        )
    if not 1 <= len(display_name) <= 64:
        raise ChatError(400, "model.team.is_valid.name.app_error", "Invalid name.")
    now = chat.now()
    team = Team(
        id=new_id(),
        create_at=now,
        update_at=now,
        name=name,
        display_name=display_name,
        type=kind,
        invite_id=new_id(),
        **more,
    )
    channels = [
        Channel(
            id=new_id(),
            create_at=now,
            update_at=now,
            team_id=team.id,
            type=OPEN,
            name=channel,
            display_name=shown,
            creator_id="",
        )
        for channel, shown in DEFAULT_CHANNELS.items()
    ]

    def save(connection: sqlite3.Connection) -> None:
        put(connection, team)
        for channel in channels:
            put(connection, channel)

    try:
        await chat.store.write(save)
    except sqlite3.IntegrityError as error:
        raise ChatError(400, "app.team.save.existing.app_error", "A team with that name already exists.") from error
    chat.directory.add_team(team)
    for channel in channels:
        chat.directory.add_channel(channel)
    await join_team(chat, team, creator, by=creator, admin=True)
    return team


async def join_team(chat: Chat, team: Team, user: User, *, by: User, admin: bool = False) -> TeamMember:
    """Add a user to a team and its default channels; a member stays as it is."""
    member = chat.directory.team_member(team.id, user.id)
    if member is not None:
        return member
    if len(chat.directory.members_of_team(team.id)) >= chat.settings.max_users_per_team:
        raise ChatError(
            400,
            "app.team.join_user_to_team.max_accounts.app_error",
            "This team has reached the maximum number of allowed accounts. Contact your System Administrator to set a "
            "higher limit.",
        )
    member = TeamMember(team.id, user.id, chat.now(), scheme_admin=admin)
    chat.directory.team_members[team.id][user.id] = member  # counted at once: two joins cannot share the last place
    try:
        await chat.store.write(lambda connection: replace(connection, member))
    except BaseException:
        del chat.directory.team_members[team.id][user.id]
        raise
    chat.hub.publish("added_to_team", {"team_id": team.id, "user_id": user.id}, user_id=user.id)
    for name in DEFAULT_CHANNELS:
        channel = chat.directory.channels_by_name.get((team.id, name))
        if channel is not None:
            await join_channel(chat, channel, user, by=by)
    return member


async def leave_team(chat: Chat, team: Team, user: User) -> None:
    """End a membership in a team and in all of its channels."""
    member = chat.directory.team_members[team.id].pop(user.id)
    member.delete_at = chat.now()
    await chat.store.write(lambda connection: replace(connection, member))
    for channel_id in list(chat.directory.channels_of[user.id]):
        channel = chat.directory.channels[channel_id]
        if channel.team_id == team.id:
            await leave_channel(chat, channel, user, by=user, silent=True)
    chat.hub.publish("leave_team", {"user_id": user.id, "team_id": team.id}, team_id=team.id)
    chat.hub.publish("leave_team", {"user_id": user.id, "team_id": team.id}, user_id=user.id)


def team_member_error(user_id: str, error: ChatError, request_id: str) -> dict[str, Any]:
    """Return what a graceful batch says of a user that could not be added."""
    return {"user_id": user_id, "member": None, "error": error.shape(request_id)}


def team_member_success(member: TeamMember) -> dict[str, Any]:
    """Return what a graceful batch says of a user that was added."""
    return {"user_id": member.user_id, "member": team_member_shape(member), "error": None}


async def create_channel(
    chat: Chat, creator: User, team: Team, name: str, display_name: str, kind: str, **more: Any
) -> Channel:
    """Create an open or private channel; its creator joins it as its admin."""
    name = name.strip().lower()
    if kind not in {OPEN, PRIVATE}:
        raise ChatError(400, "model.channel.is_valid.type.app_error", "Invalid type.")
    if len(name) > 64 or not _CHANNEL_NAME.fullmatch(name):
        raise ChatError(
            400,
            "model.channel.is_valid.1_or_more.app_error",
            "Name must be 1 or more lowercase alphanumeric characters.",
        )
    if not 1 <= len(display_name) <= 64:
        raise ChatError(400, "model.channel.is_valid.display_name.app_error", "Invalid display name.")
    in_team = sum(channel.team_id == team.id for channel in chat.directory.channels.values())
    if in_team >= chat.settings.max_channels_per_team:
        raise ChatError(
            400,
            "api.channel.create_channel.max_channel_limit.app_error",
            f"Unable to create more than {chat.settings.max_channels_per_team} channels for current team.",
        )
    now = chat.now()
    channel = Channel(
        id=new_id(),
        create_at=now,
        update_at=now,
        team_id=team.id,
        type=kind,
        name=name,
        display_name=display_name,
        creator_id=creator.id,
        **more,
    )
    try:
        await _save_channel(chat, channel, [ChannelMember(channel.id, creator.id, now, scheme_admin=True)])
    except sqlite3.IntegrityError as error:
        raise ChatError(
            400,
            "store.sql_channel.save_channel.exists.app_error",
            "A channel with that name already exists on the same team.",
        ) from error
    chat.hub.publish("channel_created", {"channel_id": channel.id, "team_id": team.id}, user_id=creator.id)
    return channel


async def _save_channel(chat: Chat, channel: Channel, members: list[ChannelMember]) -> None:
    def save(connection: sqlite3.Connection) -> None:
        put(connection, channel)
        for member in members:
            put(connection, member)

    await chat.store.write(save)
    chat.directory.add_channel(channel)
    for member in members:
        chat.directory.add_channel_member(member)


async def save_channel(chat: Chat, channel: Channel, **changes: Any) -> Channel:
    """Change a channel and tell its members."""
    changes["update_at"] = chat.now()
    await chat.store.write(lambda connection: change(connection, channel, **changes))
    for name, value in changes.items():
        setattr(channel, name, value)
    chat.hub.publish("channel_updated", {"channel": dumps(channel_shape(channel))}, channel_id=channel.id)
    return channel


async def join_channel(chat: Chat, channel: Channel, user: User, *, by: User) -> ChannelMember:
    """Add a user to a channel: a `system_*` post, then `user_added`; a member stays as it is."""
    member = chat.directory.channel_member(channel.id, user.id)
    if member is not None:
        return member
    now = chat.now()
    member = ChannelMember(
        channel.id,
        user.id,
        now,
        msg_count=channel.total_msg_count,
        msg_count_root=channel.total_msg_count_root,
        last_viewed_at=0,
    )
    added = member
    await chat.store.write(lambda connection: replace(connection, added))
    meanwhile = chat.directory.channel_member(channel.id, user.id)
    if meanwhile is not None:
        return meanwhile  # added by another request, which tells the channel
    chat.directory.add_channel_member(member)
    is_default = channel.name in DEFAULT_CHANNELS
    if not is_default or chat.settings.default_channel_join_messages:
        await _post_join(chat, channel, user, by)
    chat.hub.publish("user_added", {"user_id": user.id, "team_id": channel.team_id}, channel_id=channel.id)
    return member


async def _post_join(chat: Chat, channel: Channel, user: User, by: User) -> None:
    if channel.name == "town-square":
        if by.id == user.id:
            await posting.create(
                chat,
                user,
                channel,
                f"{user.username} joined the team.",
                kind="system_join_team",
                props={"username": user.username},
            )
            return
        message, kind = f"{user.username} added to the team by {by.username}.", "system_add_to_team"
    elif by.id == user.id:
        await posting.create(
            chat,
            user,
            channel,
            f"{user.username} joined the channel.",
            kind="system_join_channel",
            props={"username": user.username},
        )
        return
    else:
        message, kind = f"{user.username} added to the channel by {by.username}.", "system_add_to_channel"
    props = {
        "userId": by.id,
        "username": by.username,
        "addedUserId": user.id,
        "addedUsername": user.username,
    }
    await posting.create(chat, by, channel, message, kind=kind, props=props)


async def leave_channel(chat: Chat, channel: Channel, user: User, *, by: User, silent: bool = False) -> None:
    """End a membership in a channel: `user_removed` to the channel and to the user."""
    member = chat.directory.channel_member(channel.id, user.id)
    if member is None:
        return
    gone = member
    await chat.store.write(lambda connection: remove(connection, gone))
    chat.directory.drop_channel_member(channel.id, user.id)
    if not silent:
        if by.id == user.id:
            await posting.create(
                chat,
                user,
                channel,
                f"{user.username} left the channel.",
                kind="system_leave_channel",
                props={"username": user.username},
            )
        else:
            await posting.create(
                chat,
                by,
                channel,
                f"{user.username} was removed from the channel.",
                kind="system_remove_from_channel",
                props={"removedUserId": user.id, "removedUsername": user.username},
            )
    chat.hub.publish("user_removed", {"user_id": user.id, "remover_id": by.id}, channel_id=channel.id)
    chat.hub.publish("user_removed", {"channel_id": channel.id, "remover_id": by.id}, user_id=user.id)


async def direct_channel(chat: Chat, creator_id: str, other_id: str) -> Channel:
    """Return the direct channel of two users, made when it is missing; both see `direct_added`."""
    name = "__".join(sorted([creator_id, other_id]))
    found = chat.directory.channels_by_name.get(("", name))
    if found is not None:
        return found
    now = chat.now()
    channel = Channel(
        id=new_id(),
        create_at=now,
        update_at=now,
        team_id="",
        type=DIRECT,
        name=name,
        display_name="",
        creator_id=creator_id,
    )
    members = [ChannelMember(channel.id, user_id, now) for user_id in dict.fromkeys([creator_id, other_id])]
    try:
        await _save_channel(chat, channel, members)
    except sqlite3.IntegrityError:
        # Another request made it meanwhile; its commit came first, so it is in the directory or about to be.
        return await _await_channel(chat, name)
    chat.hub.publish("direct_added", {"creator_id": creator_id, "teammate_id": other_id}, channel_id=channel.id)
    return channel


async def group_channel(chat: Chat, creator: User, user_ids: list[str]) -> Channel:
    """Return the group channel of three to eight users, made when it is missing."""
    ids = sorted({*user_ids, creator.id})
    if not 3 <= len(ids) <= 8:
        raise ChatError(
            400,
            "api.channel.create_group.bad_size.app_error",
            "Group message channels must contain at least 3 and no more than 8 users.",
        )
    users = [chat.directory.users.get(user_id) for user_id in ids]
    names = sorted(user.username for user in users if user is not None)
    if len(names) != len(ids):
        raise no_such_user()
    name = posting.group_name(ids)
    found = chat.directory.channels_by_name.get(("", name))
    if found is not None:
        return found
    now = chat.now()
    channel = Channel(
        id=new_id(),
        create_at=now,
        update_at=now,
        team_id="",
        type=GROUP,
        name=name,
        display_name=", ".join(names),
        creator_id=creator.id,
    )
    try:
        await _save_channel(chat, channel, [ChannelMember(channel.id, user_id, now) for user_id in ids])
    except sqlite3.IntegrityError:
        return await _await_channel(chat, name)
    chat.hub.publish("group_added", {"teammate_ids": dumps(ids)}, channel_id=channel.id)
    return channel


async def _await_channel(chat: Chat, name: str) -> Channel:
    def nothing(_: sqlite3.Connection) -> None:
        return None

    for _ in range(3):
        found = chat.directory.channels_by_name.get(("", name))
        if found is not None:
            return found
        await chat.store.write(nothing)
    raise ChatError(500, "app.channel.create_direct_channel.internal_error", "Unable to make the direct channel.")


def check_user(chat: Chat, user_id: str) -> User:
    """Return a user named by a body; ChatError 404 when there is none, 400 when it is no id."""
    if not user_id:
        raise invalid_body("user_id")
    user = chat.directory.users.get(user_id)
    if user is None:
        raise no_such_user()
    return user
