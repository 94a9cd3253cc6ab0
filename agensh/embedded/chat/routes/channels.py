"""`/channels` and the channels of teams and users."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat import membership
from agensh.embedded.chat.context import Call, Session, answer, ok, text, texts
from agensh.embedded.chat.errors import (
    ChatError,
    forbidden,
    invalid_body,
    no_such_channel_member,
    no_such_channel_name,
    no_such_team,
)
from agensh.embedded.chat.model import OPEN, Channel, ChannelMember, User
from agensh.embedded.chat.reading import pinned
from agensh.embedded.chat.shapes import channel_member_shape, channel_shape, dumps
from agensh.embedded.chat.store import change

router = APIRouter()
BATCH = 1000
"""Most users added by one request."""


@router.post("/channels")
async def create(call: Session) -> Response:
    fields = await call.fields()
    team = call.directory.teams.get(text(fields, "team_id"))
    if team is None:
        raise no_such_team()
    if not call.in_team(team):
        raise forbidden()
    channel = await membership.create_channel(
        call.chat,
        call.user,
        team,
        text(fields, "name"),
        text(fields, "display_name"),
        text(fields, "type"),
        header=text(fields, "header", ""),
        purpose=text(fields, "purpose", ""),
    )
    return answer(channel_shape(channel), 201)


@router.get("/channels")
async def listing(call: Session) -> Response:
    call.require_admin()
    start, size = call.page()
    channels = [channel for channel in call.directory.channels.values() if channel.team_id and not channel.delete_at]
    return answer([channel_shape(channel) for channel in channels[start : start + size]])


@router.post("/channels/direct")
async def direct(call: Session) -> Response:
    ids = await call.names("user_ids")
    if len(ids) != 2:
        raise invalid_body("user_ids")
    users = [membership.check_user(call.chat, user_id) for user_id in ids]
    if call.user.id not in ids and not call.user.is_admin:
        raise forbidden()
    channel = await membership.direct_channel(call.chat, users[0].id, users[1].id)
    return answer(channel_shape(channel), 201)


@router.post("/channels/group")
async def group(call: Session) -> Response:
    ids = await call.names("user_ids")
    return answer(channel_shape(await membership.group_channel(call.chat, call.user, ids)), 201)


@router.post("/channels/members/{user_id}/view")
async def view(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    fields = await call.fields()
    times: dict[str, int] = {}
    for name in ("channel_id", "prev_channel_id"):
        channel = call.directory.channels.get(text(fields, name, ""))
        member = call.directory.channel_member(channel.id, user.id) if channel is not None else None
        if channel is None or member is None:
            continue
        times[channel.id] = await _viewed(call, channel, member)
    if times:
        call.chat.hub.publish("multiple_channels_viewed", {"channel_times": times}, user_id=user.id)
    return answer({"status": "OK", "last_viewed_at_times": times})


async def _viewed(call: Call, channel: Channel, member: ChannelMember) -> int:
    member.last_viewed_at = max(member.last_viewed_at, channel.last_post_at)
    member.msg_count, member.msg_count_root = channel.total_msg_count, channel.total_msg_count_root
    member.mention_count = member.mention_count_root = 0
    seen = {
        name: getattr(member, name)
        for name in ("last_viewed_at", "msg_count", "msg_count_root", "mention_count", "mention_count_root")
    }
    await call.chat.store.write(lambda connection: change(connection, member, **seen))
    return int(seen["last_viewed_at"])


@router.get("/channels/{channel_id}")
async def get(call: Session, channel_id: str) -> Response:
    return answer(channel_shape(call.channel_of(channel_id)))


@router.put("/channels/{channel_id}/patch")
async def patch(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    if not call.is_member(channel) and not call.user.is_admin:
        raise forbidden()
    fields = await call.fields()
    changes = {
        name: text(fields, name, "") for name in ("display_name", "header", "purpose") if fields.get(name) is not None
    }
    return answer(channel_shape(await membership.save_channel(call.chat, channel, **changes)))


@router.delete("/channels/{channel_id}")
async def archive(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    if not call.may_manage(channel) or channel.name in membership.DEFAULT_CHANNELS:
        raise forbidden()
    await membership.save_channel(call.chat, channel, delete_at=call.chat.now())
    data = {"channel_id": channel.id, "delete_at": call.chat.now()}
    call.chat.hub.publish("channel_deleted", data, team_id=channel.team_id)
    return ok()


@router.get("/channels/{channel_id}/stats")
async def stats(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    found = await call.chat.store.read(lambda connection: pinned(connection, channel.id))
    return answer(
        {
            "channel_id": channel.id,
            "member_count": len(call.directory.channel_members[channel.id]),
            "guest_count": 0,
            "pinnedpost_count": len(found["order"]),
            "files_count": 0,
        }
    )


@router.get("/channels/{channel_id}/pinned")
async def pinned_posts(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    return answer(await call.chat.store.read(lambda connection: pinned(connection, channel.id)))


@router.get("/channels/{channel_id}/members")
async def members(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    start, size = call.page()
    page = list(call.directory.channel_members[channel.id].values())[start : start + size]
    return answer([channel_member_shape(member) for member in page])


@router.post("/channels/{channel_id}/members")
async def add_members(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    fields = await call.fields()
    many = fields.get("user_ids") is not None
    ids = texts(fields, "user_ids") if many else [text(fields, "user_id")]
    if not ids or len(ids) > BATCH:
        raise invalid_body("user_ids")
    if channel.type not in {OPEN, "P"}:
        raise ChatError(400, "api.channel.add_user_to_channel.type.app_error", "Can not add user to this channel type.")
    joins_itself = channel.type == OPEN and ids == [call.user.id]
    if not joins_itself and not call.may_manage(channel):
        raise forbidden()
    added = [await _add(call, channel, user_id) for user_id in dict.fromkeys(ids)]
    shapes = [channel_member_shape(member) for member in added]
    return answer(shapes if many else shapes[0], 201)


async def _add(call: Call, channel: Channel, user_id: str) -> ChannelMember:
    user = membership.check_user(call.chat, user_id)
    if call.directory.team_member(channel.team_id, user.id) is None:
        raise ChatError(
            404, "app.team.get_member.missing.app_error", "No team member found for that user ID and team ID."
        )
    return await membership.join_channel(call.chat, channel, user, by=call.user)


@router.post("/channels/{channel_id}/members/ids")
async def members_by_ids(call: Session, channel_id: str) -> Response:
    channel = call.channel_of(channel_id)
    found = (call.directory.channel_member(channel.id, user_id) for user_id in await call.names("user_ids"))
    return answer([channel_member_shape(member) for member in found if member is not None])


def _member(call: Call, channel: Channel, user_id: str) -> ChannelMember:
    member = call.directory.channel_member(channel.id, call.user_of(user_id).id)
    if member is None:
        raise no_such_channel_member()
    return member


@router.get("/channels/{channel_id}/members/{user_id}")
async def member(call: Session, channel_id: str, user_id: str) -> Response:
    return answer(channel_member_shape(_member(call, call.channel_of(channel_id), user_id)))


@router.delete("/channels/{channel_id}/members/{user_id}")
async def remove_member(call: Session, channel_id: str, user_id: str) -> Response:
    channel = call.channel_of(channel_id)
    user = call.user_of(user_id)
    _member(call, channel, user.id)
    if channel.type not in {OPEN, "P"} or channel.name == "town-square":
        raise ChatError(400, "api.channel.remove_channel_member.type.app_error", "Unable to remove user from channel.")
    if user.id != call.user.id and not call.may_manage(channel):
        raise forbidden()
    await membership.leave_channel(call.chat, channel, user, by=call.user)
    return ok()


@router.get("/teams/{team_id}/channels")
async def of_team(call: Session, team_id: str) -> Response:
    team = call.team_of(team_id)
    start, size = call.page()
    channels = [
        channel
        for channel in call.directory.channels.values()
        if channel.team_id == team.id and channel.type == OPEN and not channel.delete_at
    ]
    channels.sort(key=lambda channel: channel.display_name)
    return answer([channel_shape(channel) for channel in channels[start : start + size]])


@router.get("/teams/{team_id}/channels/name/{name}")
async def by_name(call: Session, team_id: str, name: str) -> Response:
    team = call.directory.teams.get(team_id)
    if team is None:
        raise no_such_team()
    return answer(channel_shape(_named(call, team.id, name)))


@router.get("/teams/name/{team_name}/channels/name/{name}")
async def by_names(call: Session, team_name: str, name: str) -> Response:
    team = call.directory.teams_by_name.get(team_name)
    if team is None:
        raise no_such_channel_name()
    return answer(channel_shape(_named(call, team.id, name)))


def _named(call: Call, team_id: str, name: str) -> Channel:
    channel = call.directory.channels_by_name.get((team_id, name.lower()))
    if channel is None:
        channel = call.directory.channels_by_name.get(("", name))  # direct channels are found under any team
    if channel is None or (channel.delete_at and not call.flag("include_deleted")):
        raise no_such_channel_name()
    if not call.may_read(channel):
        raise no_such_channel_name() if channel.type != OPEN else forbidden()
    return channel


def _channels_of(call: Call, user: User) -> list[Channel]:
    channels = [call.directory.channels[channel_id] for channel_id in call.directory.channels_of[user.id]]
    if not call.flag("include_deleted"):
        channels = [channel for channel in channels if not channel.delete_at]
    since = call.number("last_delete_at", 0)
    return [channel for channel in channels if not channel.delete_at or channel.delete_at >= since]


@router.get("/users/{user_id}/channels")
async def of_user(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    return answer([channel_shape(channel) for channel in _some(_channels_of(call, user))])


@router.get("/users/{user_id}/teams/{team_id}/channels")
async def of_user_in_team(call: Session, user_id: str, team_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    team = call.team_of(team_id)
    channels = [channel for channel in _channels_of(call, user) if channel.team_id in {team.id, ""}]
    channels.sort(key=lambda channel: channel.display_name)
    return answer([channel_shape(channel) for channel in _some(channels)])


def _some(channels: list[Channel]) -> list[Channel]:
    """The real server answers 404 instead of an empty list."""
    if not channels:
        raise ChatError(404, "app.channel.get_channels.not_found.app_error", "No channels were found.")
    return channels


@router.get("/users/{user_id}/channel_members")
async def memberships_of_user(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    found = [call.directory.channel_members[channel_id][user.id] for channel_id in call.directory.channels_of[user.id]]
    if call.query("page") == "-1":
        lines = "".join(f"{_line(member)}\n" for member in found)
        return Response(lines, media_type="application/x-ndjson")
    start, size = call.page()
    return answer([channel_member_shape(member) for member in found[start : start + size]])


def _line(member: ChannelMember) -> str:
    return dumps(channel_member_shape(member))


@router.get("/users/{user_id}/teams/{team_id}/channels/members")
async def memberships_in_team(call: Session, user_id: str, team_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    team = call.team_of(team_id)
    channels = [channel for channel in _channels_of(call, user) if channel.team_id in {team.id, ""}]
    members = [call.directory.channel_members[channel.id][user.id] for channel in channels]
    return answer([channel_member_shape(member) for member in members])


@router.get("/users/{user_id}/channels/{channel_id}/unread")
async def unread(call: Session, user_id: str, channel_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    channel = call.channel_of(channel_id)
    member = _member(call, channel, user.id)
    shape: dict[str, Any] = {
        "team_id": channel.team_id,
        "user_id": user.id,
        "channel_id": channel.id,
        "msg_count": max(0, channel.total_msg_count - member.msg_count),
        "mention_count": member.mention_count,
        "mention_count_root": member.mention_count_root,
        "urgent_mention_count": 0,
        "msg_count_root": max(0, channel.total_msg_count_root - member.msg_count_root),
        "notify_props": channel_member_shape(member)["notify_props"],
    }
    return answer(shape)


@router.put("/channels/{channel_id}/members/{user_id}/notify_props")
async def notify_props(call: Session, channel_id: str, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    member = _member(call, call.channel_of(channel_id), user.id)
    fields = await call.fields()
    member.notify_props |= {name: value for name, value in fields.items() if isinstance(value, str)}
    changed = dict(member.notify_props)
    await call.chat.store.write(lambda connection: change(connection, member, notify_props=changed))
    return ok()
