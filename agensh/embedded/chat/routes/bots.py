"""`/bots`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from agensh.embedded.chat import accounts
from agensh.embedded.chat.context import Call, Session, answer, text
from agensh.embedded.chat.errors import ChatError, forbidden
from agensh.embedded.chat.model import User
from agensh.embedded.chat.shapes import bot_shape

router = APIRouter(prefix="/bots")


def _bot(call: Call, user_id: str) -> User:
    user = call.directory.users.get(user_id)
    if user is None or not user.is_bot or (user.delete_at and not call.user.is_admin):
        raise ChatError(404, "store.sql_bot.get.missing.app_error", "Bot does not exist.")
    return user


@router.post("")
async def create(call: Session) -> Response:
    if not call.chat.settings.enable_bot_account_creation:
        raise ChatError(403, "api.bot.create_disabled", "Bot creation has been disabled.")
    if call.user.is_bot or not call.user.is_admin:
        raise forbidden()
    fields = await call.fields()
    bot = await accounts.create_bot(
        call.chat,
        call.user,
        text(fields, "username"),
        text(fields, "display_name", ""),
        text(fields, "description", ""),
    )
    return answer(bot_shape(bot), 201)


@router.get("")
async def listing(call: Session) -> Response:
    call.require_admin()
    start, size = call.page()
    bots = [user for user in call.directory.users.values() if user.is_bot]
    if not call.flag("include_deleted"):
        bots = [bot for bot in bots if not bot.delete_at]
    return answer([bot_shape(bot) for bot in bots[start : start + size]])


@router.get("/{user_id}")
async def get(call: Session, user_id: str) -> Response:
    bot = _bot(call, user_id)
    if bot.delete_at and not call.flag("include_deleted"):
        raise ChatError(404, "store.sql_bot.get.missing.app_error", "Bot does not exist.")
    call.require_self(bot)
    return answer(bot_shape(bot))


@router.put("/{user_id}")
async def patch(call: Session, user_id: str) -> Response:
    bot = _bot(call, user_id)
    call.require_self(bot)
    fields = await call.fields()
    name = accounts.check_username(text(fields, "username", "") or bot.username)
    changed = await accounts.save_user(
        call.chat,
        bot,
        username=name,
        email=f"{name}@localhost",
        first_name=text(fields, "display_name", bot.first_name),
        description=text(fields, "description", bot.description),
    )
    return answer(bot_shape(changed))


@router.post("/{user_id}/disable")
async def disable(call: Session, user_id: str) -> Response:
    return await _set_active(call, user_id, False)


@router.post("/{user_id}/enable")
async def enable(call: Session, user_id: str) -> Response:
    return await _set_active(call, user_id, True)


async def _set_active(call: Call, user_id: str, active: bool) -> Response:
    bot = _bot(call, user_id)
    call.require_self(bot)
    await accounts.set_active(call.chat, bot, active)
    return answer(bot_shape(call.directory.users[bot.id]))
