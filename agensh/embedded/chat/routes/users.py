"""`/users`: accounts, login, tokens, status."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat import accounts
from agensh.embedded.chat.auth import COOKIE
from agensh.embedded.chat.context import Anyone, Call, Open, Session, answer, mapping, ok, text
from agensh.embedded.chat.errors import ChatError, forbidden, invalid_body, no_such_user
from agensh.embedded.chat.model import ADMIN_ROLES, Token, User
from agensh.embedded.chat.shapes import token_shape, user_shape

router = APIRouter(prefix="/users")


def _shape(call: Call, user: User) -> dict[str, Any]:
    return user_shape(user, own=call.user.is_admin or call.user.id == user.id)


@router.post("")
async def create(call: Open) -> Response:
    fields = await call.fields()
    caller = call.directory.users.get(call.session.user_id) if call.session else None
    may = not call.directory.users or call.chat.settings.enable_open_server or (caller is not None and caller.is_admin)
    if not may:
        raise ChatError(
            403,
            "api.user.create_user.no_open_server",
            "This server does not allow open signups. Please speak with your Administrator to receive an invitation.",
        )
    user = await accounts.create_user(
        call.chat,
        text(fields, "username"),
        text(fields, "email"),
        text(fields, "password"),
        nickname=text(fields, "nickname", ""),
        first_name=text(fields, "first_name", ""),
        last_name=text(fields, "last_name", ""),
        position=text(fields, "position", ""),
        locale=text(fields, "locale", "") or "en",
        props=mapping(fields, "props"),
        notify_props=mapping(fields, "notify_props"),
    )
    return answer(user_shape(user, own=True), 201)


@router.post("/login")
async def login(call: Open) -> Response:
    fields = await call.fields()
    login_id = text(fields, "login_id", "") or text(fields, "id", "")
    user, token, secret = await accounts.log_in(call.chat, login_id, text(fields, "password", ""))
    response = answer(user_shape(user, own=True), headers={"Token": secret})
    age = call.chat.settings.session_days * 86_400
    response.set_cookie(COOKIE, secret, max_age=age, path="/", httponly=True, samesite="lax")
    response.set_cookie("MMUSERID", user.id, max_age=age, path="/", samesite="lax")
    response.set_cookie("MMCSRF", token.csrf, max_age=age, path="/", samesite="lax")
    return response


@router.post("/logout")
async def logout(call: Open) -> Response:
    if call.session is not None and not call.session.personal:
        await accounts.revoke(call.chat, call.session)
    response = ok()
    for name in (COOKIE, "MMUSERID", "MMCSRF"):
        response.delete_cookie(name, path="/")
    return response


@router.get("")
async def listing(call: Session) -> Response:
    users = _selection(call)
    start, size = call.page()
    users.sort(key=lambda user: user.username)
    return answer([_shape(call, user) for user in users[start : start + size]])


def _selection(call: Call) -> list[User]:
    directory = call.directory
    team_id, channel_id = call.query("in_team"), call.query("in_channel")
    if channel_id:
        channel = call.channel_of(channel_id)
        ids = list(directory.channel_members[channel.id])
    elif team_id:
        team = call.team_of(team_id)
        ids = [member.user_id for member in directory.members_of_team(team.id)]
    else:
        ids = list(directory.users)
    outside_team, outside_channel = call.query("not_in_team"), call.query("not_in_channel")
    users = [directory.users[user_id] for user_id in ids]
    if outside_team:
        users = [user for user in users if directory.team_member(outside_team, user.id) is None]
    if outside_channel:
        users = [user for user in users if directory.channel_member(outside_channel, user.id) is None]
    if call.flag("active"):
        users = [user for user in users if not user.delete_at]
    if call.flag("inactive"):
        users = [user for user in users if user.delete_at]
    return users


@router.post("/ids")
async def by_ids(call: Session) -> Response:
    ids = await call.names("user_ids")
    if not ids:
        raise invalid_body("user_ids")
    users = (call.directory.users.get(user_id) for user_id in dict.fromkeys(ids))
    return answer([_shape(call, user) for user in users if user is not None])


@router.post("/usernames")
async def by_names(call: Session) -> Response:
    names = await call.names("usernames")
    if not names:
        raise invalid_body("usernames")
    users = (call.directory.users_by_name.get(name.lower()) for name in dict.fromkeys(names))
    return answer([_shape(call, user) for user in users if user is not None])


@router.post("/search")
async def search(call: Session) -> Response:
    fields = await call.fields()
    term = text(fields, "term").lower()
    limit = fields.get("limit", 100)
    found = _matching(call, term, text(fields, "team_id", ""), text(fields, "in_channel_id", ""))
    return answer([_shape(call, user) for user in found[: limit if isinstance(limit, int) and limit > 0 else 100]])


@router.get("/autocomplete")
async def autocomplete(call: Session) -> Response:
    term = call.query("name").lower()
    found = _matching(call, term, call.query("in_team"), call.query("in_channel"))
    return answer({"users": [_shape(call, user) for user in found[: call.number("limit", 100)]], "out_of_channel": []})


def _matching(call: Call, term: str, team_id: str, channel_id: str) -> list[User]:
    term = term.lstrip("@")
    found = []
    for user in call.directory.users.values():
        if team_id and call.directory.team_member(team_id, user.id) is None:
            continue
        if channel_id and call.directory.channel_member(channel_id, user.id) is None:
            continue
        words = (user.username, user.first_name.lower(), user.last_name.lower(), user.nickname.lower())
        if not user.delete_at and any(word.startswith(term) for word in words):
            found.append(user)
    return sorted(found, key=lambda user: user.username)


@router.get("/stats")
async def stats(call: Session) -> Response:
    return answer({"total_users_count": len(call.directory.users)})


@router.get("/username/{name}")
async def by_name(call: Session, name: str) -> Response:
    user = call.directory.users_by_name.get(name.lower())
    if user is None:
        raise no_such_user()
    return answer(_shape(call, user))


@router.get("/email/{email}")
async def by_email(call: Session, email: str) -> Response:
    user = call.directory.users_by_email.get(email.lower())
    if user is None:
        raise no_such_user()
    return answer(_shape(call, user))


@router.post("/status/ids")
async def statuses(call: Session) -> Response:
    return answer(
        [_status(call, user_id) for user_id in await call.names("user_ids") if user_id in call.directory.users]
    )


@router.get("/tokens")
async def all_tokens(call: Session) -> Response:
    call.require_admin()
    start, size = call.page()
    tokens = [token for token in call.directory.tokens.values() if token.personal]
    return answer([token_shape(token) for token in tokens[start : start + size]])


@router.post("/tokens/revoke")
async def revoke(call: Session) -> Response:
    await accounts.revoke(call.chat, await _named_token(call))
    return ok()


@router.post("/tokens/disable")
async def disable(call: Session) -> Response:
    await accounts.set_token_active(call.chat, await _named_token(call), False)
    return ok()


@router.post("/tokens/enable")
async def enable(call: Session) -> Response:
    await accounts.set_token_active(call.chat, await _named_token(call), True)
    return ok()


async def _named_token(call: Call) -> Token:
    return _token(call, text(await call.fields(), "token_id"))


def _token(call: Call, token_id: str) -> Token:
    token = call.directory.tokens_by_id.get(token_id)
    if token is None or not token.personal:
        raise ChatError(404, "app.user_access_token.get_by_user.app_error", "Unable to get the personal access token.")
    call.require_self(call.directory.users[token.user_id])
    return token


@router.get("/tokens/{token_id}")
async def token(call: Session, token_id: str) -> Response:
    return answer(token_shape(_token(call, token_id)))


@router.get("/{user_id}")
async def get(call: Session, user_id: str) -> Response:
    return answer(_shape(call, call.user_of(user_id)))


@router.put("/{user_id}/patch")
async def patch(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    fields = await call.fields()
    changes: dict[str, Any] = {
        name: text(fields, name, "")
        for name in ("nickname", "first_name", "last_name", "position", "locale")
        if fields.get(name) is not None
    }
    if fields.get("username") is not None:
        changes["username"] = accounts.check_username(text(fields, "username"))
    if fields.get("email") is not None:
        changes["email"] = text(fields, "email").lower()
    for name in ("props", "notify_props"):
        if fields.get(name) is not None:
            changes[name] = mapping(fields, name)
    changed = await accounts.save_user(call.chat, user, **changes)
    call.chat.hub.publish("user_updated", {"user": user_shape(changed)})
    return answer(_shape(call, changed))


@router.put("/{user_id}/roles")
async def roles(call: Session, user_id: str) -> Response:
    call.require_admin()
    user = call.user_of(user_id)
    wanted = text(await call.fields(), "roles")
    if wanted not in {"system_user", ADMIN_ROLES, "system_admin system_user"}:
        raise invalid_body("roles")
    await accounts.save_user(call.chat, user, roles=wanted)
    return ok()


@router.put("/{user_id}/active")
async def active(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    wanted = (await call.fields()).get("active")
    if not isinstance(wanted, bool):
        raise invalid_body("active")
    if wanted:
        call.require_admin()
        if not user.is_bot and call.directory.active_users() >= call.chat.settings.users_hard_limit:
            raise ChatError(
                400,
                "app.user.update_active.user_limit.exceeded",
                "Can't activate user. Server exceeds safe user limit. Contact administrator with: "
                "ERROR_SAFETY_LIMITS_EXCEEDED.",
            )
    else:
        call.require_self(user)
    await accounts.set_active(call.chat, user, wanted)
    return ok()


@router.delete("/{user_id}")
async def deactivate(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    await accounts.set_active(call.chat, user, False)
    return ok()


@router.post("/{user_id}/tokens")
async def create_token(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    made, secret = await accounts.create_access_token(call.chat, user, text(await call.fields(), "description", ""))
    return answer(token_shape(made, secret))


@router.get("/{user_id}/tokens")
async def tokens(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    start, size = call.page()
    mine = [token for token in call.directory.tokens_of(user.id) if token.personal]
    return answer([token_shape(token) for token in mine[start : start + size]])


@router.get("/{user_id}/sessions")
async def sessions(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    return answer([_session_shape(token, user) for token in call.directory.tokens_of(user.id) if not token.personal])


@router.post("/{user_id}/sessions/revoke")
async def revoke_session(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    session = call.directory.tokens_by_id.get(text(await call.fields(), "session_id"))
    if session is None or session.user_id != user.id:
        raise ChatError(404, "app.session.get.app_error", "Unable to find the session.")
    await accounts.revoke(call.chat, session)
    return ok()


@router.post("/{user_id}/sessions/revoke/all")
async def revoke_sessions(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    call.require_self(user)
    for token in call.directory.tokens_of(user.id):
        if not token.personal:
            await accounts.revoke(call.chat, token)
    return ok()


def _session_shape(token: Token, user: User) -> dict[str, Any]:
    return {
        "id": token.id,
        "token": "",
        "create_at": token.create_at,
        "expires_at": token.expires_at,
        "last_activity_at": token.create_at,
        "user_id": token.user_id,
        "device_id": "",
        "roles": user.roles,
        "is_oauth": False,
        "expired_notify": False,
        "props": {},
        "team_members": [],
        "local": False,
    }


def _status(call: Anyone, user_id: str) -> dict[str, Any]:
    online = call.chat.hub.is_online(user_id)
    return {
        "user_id": user_id,
        "status": "online" if online else "offline",
        "manual": False,
        "last_activity_at": 0,
        "dnd_end_time": 0,
    }


@router.get("/{user_id}/status")
async def status(call: Session, user_id: str) -> Response:
    return answer(_status(call, call.user_of(user_id).id))


@router.put("/{user_id}/status")
async def set_status(call: Session, user_id: str) -> Response:
    user = call.user_of(user_id)
    if user.id != call.user.id:
        raise forbidden()
    wanted = text(await call.fields(), "status")
    if wanted not in {"online", "away", "dnd", "offline"}:
        raise invalid_body("status")
    return answer(_status(call, user.id) | {"status": wanted, "manual": True})
