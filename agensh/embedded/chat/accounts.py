"""Creating accounts and tokens."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from typing import Any

from agensh.embedded.chat import auth, posting
from agensh.embedded.chat.chat import Chat
from agensh.embedded.chat.errors import ChatError, invalid_body
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.membership import direct_channel
from agensh.embedded.chat.model import ADMIN_ROLES, Token, User
from agensh.embedded.chat.store import put, remove, replace

_USERNAME = re.compile(r"[a-z][a-z0-9.\-_]{0,63}")
PASSWORD_LENGTHS = range(8, 73)
DAY = 86_400_000
"""Milliseconds."""


def check_username(name: str) -> str:
    """Return the name in lower case; ChatError 400 when it is not allowed."""
    name = name.strip().lower()
    if not _USERNAME.fullmatch(name) or name in {"all", "channel", "here", "matterbot", "system"}:
        raise ChatError(
            400,
            "model.user.is_valid.username.app_error",
            "Username must begin with a letter and contain between 1 and 64 lowercase characters made up of numbers, "
            "letters, and the symbols '.', '-', and '_'.",
        )
    return name


async def create_user(chat: Chat, name: str, email: str, password: str, **more: Any) -> User:
    """Create an account; the first one of the server becomes its admin. ChatError 400 when it is refused."""
    name = check_username(name)
    if len(password) not in PASSWORD_LENGTHS:
        raise ChatError(
            400,
            "model.user.is_valid.pwd_min_length.app_error",
            f"Your password must contain at least {PASSWORD_LENGTHS.start} characters.",
        )
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", email):
        raise ChatError(400, "model.user.is_valid.email.app_error", "Invalid email.")
    if chat.directory.active_users() >= chat.settings.users_hard_limit:
        raise ChatError(
            400,
            "api.user.create_user.user_limits.exceeded",
            "Can't create user. Server exceeds maximum user limit. Contact your administrator with: "
            "ERROR_SAFETY_LIMITS_EXCEEDED.",
        )
    now = chat.now()
    user = User(
        id=new_id(),
        create_at=now,
        update_at=now,
        username=name,
        email=email.lower(),
        roles="system_user" if chat.directory.users else ADMIN_ROLES,
        password_hash=await auth.hash_password(password),
        last_password_update=now,
        **more,
    )
    await _save_new(chat, user)
    return user


async def create_bot(chat: Chat, owner: User, name: str, display_name: str, description: str) -> User:
    """Create a bot; its owner gets a direct message from it, as on the real server."""
    name = check_username(name)
    now = chat.now()
    bot = User(
        id=new_id(),
        create_at=now,
        update_at=now,
        username=name,
        email=f"{name}@localhost",
        roles="system_user",
        first_name=display_name,
        is_bot=True,
        owner_id=owner.id,
        description=description,
    )
    await _save_new(chat, bot)
    channel = await direct_channel(chat, bot.id, owner.id)
    await posting.create(
        chat,
        bot,
        channel,
        "Please add me to teams and channels you want me to interact in. To do this, use the browser or Mattermost "
        "Desktop App.",
        kind="system_add_bot_teams_channels",
    )
    return bot


async def _save_new(chat: Chat, user: User) -> None:
    try:
        await chat.store.write(lambda connection: put(connection, user))
    except sqlite3.IntegrityError as error:
        if user.username in chat.directory.users_by_name or "username" in str(error):
            raise ChatError(
                400, "app.user.save.username_exists.app_error", "An account with that username already exists."
            ) from error
        raise ChatError(
            400, "app.user.save.email_exists.app_error", "An account with that email already exists."
        ) from error
    chat.directory.add_user(user)
    chat.hub.publish("new_user", {"user_id": user.id})


async def save_user(chat: Chat, user: User, **changes: Any) -> User:
    """Change an account and tell everybody."""
    changed = dataclasses.replace(user, update_at=chat.now(), **changes)
    try:
        await chat.store.write(lambda connection: replace(connection, changed))
    except sqlite3.IntegrityError as error:
        raise ChatError(
            400, "app.user.save.username_exists.app_error", "An account with that username or email already exists."
        ) from error
    chat.directory.add_user(changed)
    return changed


async def log_in(chat: Chat, login_id: str, password: str) -> tuple[User, Token, str]:
    """Return the account, a new session and its secret; ChatError 401 on any mismatch, bots included."""
    name = login_id.strip().lower()
    user = chat.directory.users_by_name.get(name) or chat.directory.users_by_email.get(name)
    if user is None or not await auth.password_matches(password, user.password_hash):
        raise ChatError(
            401,
            "api.user.login.invalid_credentials_email_username",
            "Enter a valid email or username and/or password.",
        )
    if user.delete_at:
        raise ChatError(
            401, "api.user.login.inactive.app_error", "Login failed because your account has been deactivated."
        )
    token, secret = await _new_token(
        chat, user, expires_at=chat.now() + chat.settings.session_days * DAY, csrf=new_id()
    )
    return user, token, secret


async def create_access_token(chat: Chat, user: User, description: str) -> tuple[Token, str]:
    """Create a personal access token; ordinary users need the setting, bots do not."""
    if not user.is_bot and not chat.settings.enable_user_access_tokens:
        raise ChatError(501, "app.user_access_token.disabled", "Personal access tokens are disabled on this server.")
    if not description:
        raise invalid_body("description")
    return await _new_token(chat, user, personal=True, description=description)


async def _new_token(chat: Chat, user: User, **more: Any) -> tuple[Token, str]:
    secret, hashed = auth.new_secret()
    token = Token(hash=hashed, id=new_id(), user_id=user.id, create_at=chat.now(), **more)
    await chat.store.write(lambda connection: put(connection, token))
    chat.directory.add_token(token)
    return token, secret


async def revoke(chat: Chat, token: Token) -> None:
    """Delete a token: requests under it fail, and its websockets fall silent."""
    await chat.store.write(lambda connection: remove(connection, token))
    chat.directory.drop_token(token)


async def set_token_active(chat: Chat, token: Token, active: bool) -> None:
    """Disable or enable a personal access token."""
    changed = dataclasses.replace(token, is_active=active)
    await chat.store.write(lambda connection: replace(connection, changed))
    chat.directory.add_token(changed)


async def ensure_admin(chat: Chat, name: str, password: str) -> None:
    """Create the admin account when it is missing; an existing account is left alone."""
    if name.lower() not in chat.directory.users_by_name:
        user = await create_user(chat, name, f"{name.lower()}@localhost.localdomain", password)
        if not user.is_admin:
            await save_user(chat, user, roles=ADMIN_ROLES)


async def set_active(chat: Chat, user: User, active: bool) -> None:
    """Disable an account with its sessions, or enable it again; a person's bots are disabled with their owner."""
    await save_user(chat, user, delete_at=0 if active else chat.now())
    if active:
        return
    for token in chat.directory.tokens_of(user.id):
        if not token.personal:
            await revoke(chat, token)
    for bot in [bot for bot in chat.directory.users.values() if bot.owner_id == user.id and not bot.delete_at]:
        await save_user(chat, bot, delete_at=chat.now())
