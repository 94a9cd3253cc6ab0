"""`/teams` and the teams of a user."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat import membership
from agensh.embedded.chat.context import Call, Session, answer, ok, text
from agensh.embedded.chat.errors import ChatError, forbidden, invalid_body, no_such_team, no_such_team_member
from agensh.embedded.chat.model import OPEN, Team, TeamMember
from agensh.embedded.chat.shapes import team_member_shape, team_shape

router = APIRouter()
BATCH = 256
"""Most members in one batch."""


@router.post("/teams")
async def create(call: Session) -> Response:
    fields = await call.fields()
    team = await membership.create_team(
        call.chat,
        call.user,
        text(fields, "name"),
        text(fields, "display_name"),
        text(fields, "type"),
        description=text(fields, "description", ""),
        email=text(fields, "email", "") or call.user.email,
        allow_open_invite=bool(fields.get("allow_open_invite")),
    )
    return answer(team_shape(team), 201)


def _visible(call: Call) -> list[Team]:
    return [team for team in call.directory.teams.values() if team.allow_open_invite or call.in_team(team)]


@router.get("/teams")
async def listing(call: Session) -> Response:
    start, size = call.page()
    teams = sorted(_visible(call), key=lambda team: team.display_name)
    page = [team_shape(team, full=call.in_team(team)) for team in teams[start : start + size]]
    if call.flag("include_total_count"):
        return answer({"teams": page, "total_count": len(teams)})
    return answer(page)


@router.post("/teams/search")
async def search(call: Session) -> Response:
    term = text(await call.fields(), "term", "").lower()
    found = [team for team in _visible(call) if term in team.name or term in team.display_name.lower()]
    return answer([team_shape(team, full=call.in_team(team)) for team in found])


@router.get("/teams/name/{name}")
async def by_name(call: Session, name: str) -> Response:
    team = call.directory.teams_by_name.get(name.lower())
    if team is None:
        raise ChatError(404, "app.team.get_by_name.missing.app_error", "Unable to find the existing team.")
    return answer(team_shape(call.team_of(team.id), full=call.in_team(team)))


@router.get("/teams/name/{name}/exists")
async def exists(call: Session, name: str) -> Response:
    return answer({"exists": name.lower() in call.directory.teams_by_name})


@router.get("/teams/{team_id}")
async def get(call: Session, team_id: str) -> Response:
    team = call.team_of(team_id)
    return answer(team_shape(team, full=call.in_team(team)))


@router.get("/teams/{team_id}/stats")
async def stats(call: Session, team_id: str) -> Response:
    team = _own(call, team_id)
    members = [call.directory.users[member.user_id] for member in call.directory.members_of_team(team.id)]
    return answer(
        {
            "team_id": team.id,
            "total_member_count": len(members),
            "active_member_count": sum(not user.delete_at for user in members),
        }
    )


def _own(call: Call, team_id: str) -> Team:
    team = call.directory.teams.get(team_id)
    if team is None:
        raise no_such_team()
    if not call.in_team(team):
        raise forbidden()
    return team


def _may_add(call: Call, team: Team, user_ids: list[str]) -> None:
    """A member may add others; anybody may join a team with an open invitation."""
    if call.in_team(team):
        return
    if not (team.type == OPEN and team.allow_open_invite and user_ids == [call.user.id]):
        raise forbidden()


@router.get("/teams/{team_id}/members")
async def members(call: Session, team_id: str) -> Response:
    team = _own(call, team_id)
    start, size = call.page()
    page = call.directory.members_of_team(team.id)[start : start + size]
    return answer([team_member_shape(member) for member in page])


@router.post("/teams/{team_id}/members")
async def add_member(call: Session, team_id: str) -> Response:
    fields = await call.fields()
    team = call.directory.teams.get(team_id)
    if team is None:
        raise no_such_team()
    if text(fields, "team_id", team_id) != team_id:
        raise invalid_body("team_id")
    user = membership.check_user(call.chat, text(fields, "user_id"))
    _may_add(call, team, [user.id])
    return answer(team_member_shape(await membership.join_team(call.chat, team, user, by=call.user)), 201)


@router.post("/teams/{team_id}/members/batch")
async def add_members(call: Session, team_id: str) -> Response:
    body = await call.body()
    team = call.directory.teams.get(team_id)
    if team is None:
        raise no_such_team()
    if not isinstance(body, list) or not body or not all(isinstance(item, dict) for item in body):
        raise invalid_body("no members in batch")
    if len(body) > BATCH:
        raise invalid_body("too many members in batch")
    ids = [text(item, "user_id") for item in body]
    if any(item.get("team_id") != team_id for item in body):
        raise invalid_body("team_id for member")
    _may_add(call, team, ids)
    graceful = call.flag("graceful")
    made: list[dict[str, Any]] = []
    for user_id in ids:
        try:
            user = membership.check_user(call.chat, user_id)
            member = await membership.join_team(call.chat, team, user, by=call.user)
        except ChatError as error:
            if not graceful:
                raise
            made.append(membership.team_member_error(user_id, error, ""))
        else:
            made.append(membership.team_member_success(member) if graceful else team_member_shape(member))
    return answer(made, 201)


@router.post("/teams/{team_id}/members/ids")
async def members_by_ids(call: Session, team_id: str) -> Response:
    team = _own(call, team_id)
    ids = await call.names("user_ids")
    found = (call.directory.team_member(team.id, user_id) for user_id in ids)
    return answer([team_member_shape(member) for member in found if member is not None])


def _member(call: Call, team: Team, user_id: str) -> TeamMember:
    member = call.directory.team_member(team.id, call.user_of(user_id).id)
    if member is None:
        raise no_such_team_member()
    return member


@router.get("/teams/{team_id}/members/{user_id}")
async def member(call: Session, team_id: str, user_id: str) -> Response:
    return answer(team_member_shape(_member(call, _own(call, team_id), user_id)))


@router.delete("/teams/{team_id}/members/{user_id}")
async def remove_member(call: Session, team_id: str, user_id: str) -> Response:
    team = _own(call, team_id)
    user = call.user_of(user_id)
    call.require_self(user)
    _member(call, team, user.id)
    await membership.leave_team(call.chat, team, user)
    return ok()


@router.get("/users/{user_id}/teams")
async def of_user(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    teams = [team for team in call.directory.teams.values() if call.directory.team_member(team.id, user.id)]
    return answer([team_shape(team) for team in teams])


@router.get("/users/{user_id}/teams/members")
async def memberships_of_user(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    found = (call.directory.team_member(team_id, user.id) for team_id in call.directory.teams)
    return answer([team_member_shape(member) for member in found if member is not None])


@router.get("/users/{user_id}/teams/unread")
async def unread(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    teams = [team for team in call.directory.teams.values() if call.directory.team_member(team.id, user.id)]
    return answer([_unread(call, user.id, team.id) for team in teams])


@router.get("/users/{user_id}/teams/{team_id}/unread")
async def team_unread(call: Session, user_id: str, team_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    return answer(_unread(call, user.id, call.team_of(team_id).id))


def _unread(call: Call, user_id: str, team_id: str) -> dict[str, Any]:
    counts = {"msg_count": 0, "mention_count": 0, "msg_count_root": 0, "mention_count_root": 0}
    for channel_id in call.directory.channels_of[user_id]:
        channel = call.directory.channels[channel_id]
        if channel.team_id == team_id:
            member = call.directory.channel_members[channel_id][user_id]
            counts["msg_count"] += max(0, channel.total_msg_count - member.msg_count)
            counts["msg_count_root"] += max(0, channel.total_msg_count_root - member.msg_count_root)
            counts["mention_count"] += member.mention_count
            counts["mention_count_root"] += member.mention_count_root
    return (
        {"team_id": team_id} | counts | {"thread_count": 0, "thread_mention_count": 0, "thread_urgent_mention_count": 0}
    )
