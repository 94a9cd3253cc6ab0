"""`/system`, `/config`, `/limits` and what else clients ask at their start."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat.context import Call, Open, Session, answer, ok
from agensh.embedded.chat.errors import invalid_body
from agensh.embedded.chat.model import Preference, User
from agensh.embedded.chat.settings import POST_MAX_RUNES, SERVER_VERSION
from agensh.embedded.chat.store import remove, replace

router = APIRouter()


@router.get("/system/ping")
async def ping(call: Open) -> Response:
    shape = {
        "AndroidLatestVersion": "",
        "AndroidMinVersion": "",
        "IosLatestVersion": "",
        "IosMinVersion": "",
        "status": "OK",
    }
    if call.flag("get_server_status"):
        shape |= {"database_status": "OK", "filestore_status": "OK"}
    return answer(shape)


@router.get("/config/client")
async def config(call: Open) -> Response:
    settings = call.chat.settings
    shape = {
        "AboutLink": "",
        "BuildDate": "",
        "BuildEnterpriseReady": "false",
        "BuildHash": "",
        "BuildNumber": SERVER_VERSION,
        "CollapsedThreads": "disabled",
        "CWSURL": "",
        "DiagnosticId": "",
        "DiagnosticsEnabled": "false",
        "EnableBotAccountCreation": str(settings.enable_bot_account_creation).lower(),
        "EnableOpenServer": str(settings.enable_open_server).lower(),
        "EnableUserAccessTokens": str(settings.enable_user_access_tokens).lower(),
        "EnableUserCreation": "true",
        "FeatureFlagCollapsedThreads": "true",
        "MaxNotificationsPerChannel": str(settings.max_notifications_per_channel),
        "MaxPostSize": str(POST_MAX_RUNES),
        "PostEditTimeLimit": "-1",
        "RestrictDirectMessage": "any",
        "SiteName": settings.site_name,
        "SiteURL": settings.site_url,
        "TeammateNameDisplay": "username",
        "Version": SERVER_VERSION,
        "WebsocketPort": "80",
        "WebsocketSecurePort": "443",
        "WebsocketURL": "",
    }
    return answer(shape)


@router.get("/license/client")
async def licence(call: Open) -> Response:
    return answer({"IsLicensed": "false"})


@router.get("/limits/server")
async def limits(call: Session) -> Response:
    if not call.user.is_admin:
        return answer({"maxUsersLimit": 0, "maxUsersHardLimit": 0, "activeUserCount": 0, "postHistoryLimit": 0})
    return answer(
        {
            "maxUsersLimit": call.chat.settings.users_soft_limit,
            "maxUsersHardLimit": call.chat.settings.users_hard_limit,
            "activeUserCount": call.directory.active_users(),
            "lastAccessiblePostTime": 0,
            "postHistoryLimit": 0,
        }
    )


@router.get("/emoji")
async def emoji(call: Session) -> Response:
    return answer([])


@router.get("/plugins/webapp")
async def plugins(call: Open) -> Response:
    return answer([])


@router.post("/roles/names")
async def roles(call: Session) -> Response:
    names = await call.names("role names")
    shapes = [
        {
            "id": name,
            "name": name,
            "display_name": f"authentication.roles.{name}.name",
            "description": "",
            "create_at": 0,
            "update_at": 0,
            "delete_at": 0,
            "permissions": [],
            "scheme_managed": True,
            "built_in": True,
        }
        for name in names
        if name.startswith(("system_", "team_", "channel_"))
    ]
    return answer(shapes)


@router.get("/users/{user_id}/preferences")
async def preferences(call: Session, user_id: str) -> Response:
    user = _own(call, user_id)
    return answer([_preference_shape(preference) for preference in call.directory.preferences[user.id].values()])


@router.put("/users/{user_id}/preferences")
async def save_preferences(call: Session, user_id: str) -> Response:
    rows = await _preferences(call, _own(call, user_id))
    for row in rows:
        await call.chat.store.write(partial(replace, row=row))
        call.directory.preferences[row.user_id][row.category, row.name] = row
    return ok()


@router.post("/users/{user_id}/preferences/delete")
async def delete_preferences(call: Session, user_id: str) -> Response:
    for row in await _preferences(call, _own(call, user_id)):
        await call.chat.store.write(partial(remove, row=row))
        call.directory.preferences[row.user_id].pop((row.category, row.name), None)
    return ok()


def _own(call: Call, user_id: str) -> User:
    user = call.user_of(user_id)
    call.require_self(user)
    return user


def _preference_shape(preference: Preference) -> dict[str, str]:
    return {
        "user_id": preference.user_id,
        "category": preference.category,
        "name": preference.name,
        "value": preference.value,
    }


async def _preferences(call: Call, user: User) -> list[Preference]:
    body = await call.body()
    if not isinstance(body, list) or not 1 <= len(body) <= 100:
        raise invalid_body("preferences")
    rows = []
    for item in body:
        if not isinstance(item, dict):
            raise invalid_body("preferences")
        values = [str(item.get(name, "")) for name in ("category", "name", "value")]
        rows.append(Preference(user.id, *values))
    return rows
