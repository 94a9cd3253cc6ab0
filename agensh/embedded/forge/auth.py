"""Who is calling: tokens, Basic credentials, sessions.

The API takes `Authorization: token|Bearer …`, Basic with a password, and Basic with a token as password or as user
name. `/user/events` takes the session cookie only (a token there is nobody, as in Gitea).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import sqlite3
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace

from fastapi import Request

from agensh.clock import Clock
from agensh.embedded.forge import scopes
from agensh.embedded.forge.errors import ApiError
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Database, Row, Tx

COOKIE = "i_like_gitea"
REMEMBERED = 8192  # successful password checks kept in memory, keyed by a per-process secret
TOKEN_USED_EVERY = 60  # seconds; Gitea writes last_used at each request, which costs a write for nothing


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user, how they proved it (`token`, `password` or `session`), and the token's row."""

    user: Row
    way: str
    token: Row | None = None
    basic: bool = False
    """The proof came in a Basic header, whatever it was."""


class Passwords:
    """Hashes of passwords: PBKDF2-SHA256, computed off the event loop."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._slots = asyncio.Semaphore(4)

    async def hash(self, password: str) -> str:
        """Return the stored form of a password."""
        async with self._slots:
            return await asyncio.to_thread(self.hash_now, password)

    def hash_now(self, password: str) -> str:
        """Return the stored form of a password (blocking, tens of milliseconds)."""
        salt = secrets.token_bytes(16)
        digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, self._rounds)
        return f"pbkdf2${self._rounds}${salt.hex()}${digest.hex()}"

    async def matches(self, password: str, stored: str) -> bool:
        """Say whether a password is the stored one; a success is remembered while the process lives."""
        mark = hmac.digest(self._key, f"{stored}\0{password}".encode(), "sha256")
        if mark in self._known:
            self._known.move_to_end(mark)
            return True
        _, rounds, salt, digest = stored.split("$")
        async with self._slots:
            found = await asyncio.to_thread(
                hashlib.pbkdf2_hmac, "sha256", password.encode(), bytes.fromhex(salt), int(rounds)
            )
        if not hmac.compare_digest(found.hex(), digest):
            return False
        self._known[mark] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return True


class Authenticator:
    """Turns a request into a caller."""

    def __init__(self, db: Database, passwords: Passwords, clock: Clock) -> None:
        self._db = db
        self._passwords = passwords
        self._clock = clock

    async def api(self, request: Request) -> Caller:
        """Return the caller of an API request; 401."""
        scheme, value = _credentials(request)
        if scheme in {"token", "bearer"}:
            caller = await self._by_token(value)
        elif scheme == "basic":
            caller = await self.basic(value)
        elif query := request.query_params.get("token") or request.query_params.get("access_token"):
            caller = await self._by_token(query)
        elif user := await self.session(request):
            caller = Caller(user, "session")
        else:
            raise ApiError(401, "token is required")
        if caller is None:
            raise ApiError(401, "invalid username, password or token")
        if caller.user["prohibit_login"]:
            raise ApiError(403, "This account is prohibited from signing in, please contact your site administrator.")
        if caller.user["must_change_password"]:
            url = f"{str(request.base_url).rstrip('/')}/user/settings/change_password"
            raise ApiError(403, f"You must change your password. Change it at: {url}")
        if caller.token is not None:
            scopes.check(caller.token, request.method, request.url.path.removeprefix("/api/v1/"))
        return caller

    async def git(self, request: Request) -> Caller | None:
        """Return the caller of a git request, or None when the credentials are missing or wrong."""
        scheme, value = _credentials(request)
        caller = None
        if scheme in {"token", "bearer"}:
            caller = await self._by_token(value)
        elif scheme == "basic":
            caller = await self.basic(value)
        return None if caller is None or caller.user["prohibit_login"] else caller

    async def session(self, request: Request) -> Row | None:
        """Return the user whose session cookie came along, or None."""
        secret = request.cookies.get(COOKIE)
        if not secret:
            return None
        now = int(self._clock.time())
        user = self._db.peek(lambda tx: users.by_session(tx, now, secret))
        if user is None or user["must_change_password"] or user["prohibit_login"]:
            return None
        return user

    async def basic(self, value: str) -> Caller | None:
        """Check Basic credentials: a token in either place, else name (or e-mail) and password."""
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        for secret in (password, name) if password and password != "x-oauth-basic" else (name,):
            if caller := await self._by_token(secret):
                return replace(caller, basic=True)
        user = await self.password(name, password)
        return None if user is None else Caller(user, "password", basic=True)

    async def password(self, name: str, password: str) -> Row | None:
        """Return the user with that name or e-mail and password, or None."""

        def find(tx: Tx) -> Row | None:
            return users.by_name(tx, name) or tx.one("SELECT * FROM users WHERE email = ?", name)

        user = self._db.peek(find)
        if user is None or not password:
            return None
        return user if await self._passwords.matches(password, user["password"]) else None

    async def _by_token(self, secret: str) -> Caller | None:
        found = self._db.peek(lambda tx: users.by_token(tx, secret))
        if found is None:
            return None
        user, token = found
        now = int(self._clock.time())
        if now - token["last_used"] >= TOKEN_USED_EVERY:
            with suppress(sqlite3.OperationalError):  # which the store says, once; who only reads is not refused
                await self._db.write(lambda tx: tx.update("tokens", "id", token["id"], last_used=now))
        return Caller(user, "token", token)


def _credentials(request: Request) -> tuple[str, str]:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), value.strip()
