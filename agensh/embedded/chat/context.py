"""What a route knows about its request: the chat, the session, the body, and who may do what."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from agensh.embedded.chat.auth import find_session
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.errors import (
    ChatError,
    forbidden,
    invalid_body,
    no_such_channel,
    no_such_team,
    no_such_user,
    session_expired,
)
from agensh.embedded.chat.model import DIRECT, GROUP, OPEN, Channel, Team, Token, User
from agensh.embedded.chat.settings import BODY_LIMIT
from agensh.embedded.chat.shapes import dumps

PER_PAGE = 60
PER_PAGE_MAX = 200
NUMBER_MAX = 2**53
"""Largest number taken from a request: what JSON can carry, and far inside what the database can."""


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON."""
    return Response(dumps(value), status, headers, media_type="application/json")


def ok() -> Response:
    """Return Mattermost's bare success."""
    return answer({"status": "OK"})


class Anyone:
    """A request, with or without a session."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.chat: Chat = request.app.state.chat
        self.directory: Directory = self.chat.directory
        self.session: Token | None = find_session(self.directory, request, self.chat.now())
        if self.session is not None:
            self.chat.hub.touch(self.session.user_id)

    async def body(self) -> Any:
        """Return the JSON body; ChatError 400 when it is none, 413 when it is too large."""
        data = bytearray()
        async for chunk in self.request.stream():
            data += chunk
            if len(data) > BODY_LIMIT:
                raise ChatError(413, "api.context.request_body_too_large.app_error", "The request body is too large.")
        try:
            return json.loads(data)
        except ValueError as error:
            raise invalid_body("body") from error

    async def fields(self) -> dict[str, Any]:
        """Return the body as an object."""
        body = await self.body()
        if not isinstance(body, dict):
            raise invalid_body("body")
        return body

    async def names(self, name: str) -> list[str]:
        """Return the body as a list of strings; `name` is what an error calls it."""
        body = await self.body()
        if not isinstance(body, list) or not all(isinstance(item, str) for item in body):
            raise invalid_body(name)
        return body

    def query(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self.request.query_params.get(name, default)

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter."""
        return self.query(name).lower() in {"true", "1", "t"}

    def number(self, name: str, default: int) -> int:
        """Return a query parameter as a number; what is none counts as absent, as on the real server."""
        try:
            value = int(self.query(name))
        except ValueError:
            return default
        return value if 0 <= value <= NUMBER_MAX else default

    def page(self) -> tuple[int, int]:
        """Return offset and size of the page asked for: 60 by default, silently cut to 200."""
        size = min(self.number("per_page", PER_PAGE), PER_PAGE_MAX)
        return min(self.number("page", 0) * size, NUMBER_MAX), size


class Call(Anyone):
    """A request with a session."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        if self.session is None:
            raise session_expired()
        self.user: User = self.directory.users[self.session.user_id]

    def require_admin(self) -> None:
        """ChatError 403 unless the caller is a system admin."""
        if not self.user.is_admin:
            raise forbidden()

    def require_self(self, user: User) -> None:
        """ChatError 403 unless the caller is that user, owns that bot, or is an admin."""
        if self.user.id not in {user.id, user.owner_id} and not self.user.is_admin:
            raise forbidden()

    def user_of(self, user_id: str) -> User:
        """Return an account by id or `me`."""
        if user_id == "me":
            return self.user
        user = self.directory.users.get(user_id)
        if user is None:
            raise no_such_user()
        return user

    def team_of(self, team_id: str) -> Team:
        """Return a team that the caller may see."""
        team = self.directory.teams.get(team_id)
        if team is None:
            raise no_such_team()
        if not self.in_team(team) and not (team.type == OPEN and team.allow_open_invite):
            raise forbidden()
        return team

    def in_team(self, team: Team) -> bool:
        """Say whether the caller is a member, or an admin."""
        return self.user.is_admin or self.directory.team_member(team.id, self.user.id) is not None

    def channel_of(self, channel_id: str) -> Channel:
        """Return a channel that the caller may read: its members, and the team for an open one."""
        channel = self.directory.channels.get(channel_id)
        if channel is None:
            raise no_such_channel()
        if not self.may_read(channel):
            raise forbidden()
        return channel

    def is_member(self, channel: Channel) -> bool:
        """Say whether the caller is in the channel."""
        return self.directory.channel_member(channel.id, self.user.id) is not None

    def may_read(self, channel: Channel) -> bool:
        """Say whether the caller may read a channel."""
        if self.user.is_admin or self.is_member(channel):
            return True
        return channel.type == OPEN and self.directory.team_member(channel.team_id, self.user.id) is not None

    def may_manage(self, channel: Channel) -> bool:
        """Say whether the caller may add members to a channel: its members; a direct one takes none."""
        if channel.type in {DIRECT, GROUP}:
            return False
        return self.user.is_admin or self.is_member(channel)


async def _anyone(request: Request) -> Anyone:  # a coroutine: FastAPI would run a plain callable in a thread
    return Anyone(request)


async def _call(request: Request) -> Call:
    return Call(request)


Open = Annotated[Anyone, Depends(_anyone)]
"""A route for anybody."""
Session = Annotated[Call, Depends(_call)]
"""A route that needs a session."""


def text(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a string of a body; ChatError 400 when it is missing without a default, or no string."""
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None):
        raise invalid_body(name)
    return value


def texts(fields: dict[str, Any], name: str) -> list[str]:
    """Return a list of strings of a body."""
    value = fields.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise invalid_body(name)
    return value


def mapping(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a body, empty when absent."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_body(name)
    return value
