"""Passwords, and whose session a request carries.

The order is the real server's, trap included: the cookie `MMAUTHTOKEN` beats the `Authorization` header, and a write
under a cookie needs the session's CSRF token, so a client that keeps cookies is refused although its header is right.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import Any

from starlette.requests import HTTPConnection

from agensh.embedded.chat.directory import Directory
from agensh.embedded.chat.ids import new_id
from agensh.embedded.chat.model import Token
from agensh.identity import token_hash

COOKIE = "MMAUTHTOKEN"
_SCRYPT: dict[str, Any] = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024}
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


async def hash_password(password: str) -> str:
    """Return salt and scrypt hash."""
    salt = secrets.token_bytes(16)
    digest = await asyncio.to_thread(hashlib.scrypt, password.encode(), salt=salt, **_SCRYPT)
    return f"{salt.hex()}:{digest.hex()}"


async def password_matches(password: str, stored: str) -> bool:
    """Compare a password with a stored hash; an empty hash matches nothing."""
    salt, _, digest = stored.partition(":")
    if not digest:
        return False
    found = await asyncio.to_thread(hashlib.scrypt, password.encode(), salt=bytes.fromhex(salt), **_SCRYPT)
    return hmac.compare_digest(found.hex(), digest)


def new_secret() -> tuple[str, str]:
    """Return a fresh token and the hash under which it is stored."""
    secret = new_id()
    return secret, token_hash(secret)


def find_session(directory: Directory, request: HTTPConnection, now: int) -> Token | None:
    """Return the valid session of a request (`now` in milliseconds), None without one."""
    cookie = request.cookies.get(COOKIE, "")
    token = valid_token(directory, cookie or _header_token(request), now)
    if token is None or not cookie:
        return token
    method = request.scope.get("method", "GET")
    if method in SAFE_METHODS or _csrf_holds(request, token):
        return token
    return None


def valid_token(directory: Directory, secret: str, now: int) -> Token | None:
    """Return the token of that secret if it may be used: active, not expired, its owner not disabled."""
    if not secret:
        return None
    token = directory.tokens.get(token_hash(secret))
    if token is None or not token.is_active or (token.expires_at and token.expires_at <= now):
        return None
    user = directory.users.get(token.user_id)
    return token if user is not None and not user.delete_at else None


def _header_token(request: HTTPConnection) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() in {"bearer", "token"} else ""


def _csrf_holds(request: HTTPConnection, token: Token) -> bool:
    given = request.headers.get("x-csrf-token", "")
    if given and hmac.compare_digest(given, token.csrf):
        return True
    return request.headers.get("x-requested-with") == "XMLHttpRequest"
