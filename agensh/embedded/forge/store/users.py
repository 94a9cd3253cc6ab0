"""Users, their tokens and their sessions."""

from __future__ import annotations

import json
import re

from agensh.embedded.forge.errors import ApiError, not_found, unprocessable
from agensh.embedded.forge.store.database import Row, Tx
from agensh.identity import token_hash

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9]|[-_.](?![-_.]))*")
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
RESERVED = {"api", "user", "admin", "explore", "repo", "org", "notifications", "assets", "-", "metrics", "healthz"}
AREAS = ["activitypub", "admin", "issue", "misc", "notification", "organization", "package", "repository", "user"]
SCOPES = {"all", "public-only", "sudo", *(f"{mode}:{area}" for mode in ("read", "write") for area in AREAS)}
MIN_PASSWORD = 8


def by_name(tx: Tx, name: str) -> Row | None:
    """Return the user of that name (any case)."""
    return tx.one("SELECT * FROM users WHERE lower_name = ?", name.lower())


def require(tx: Tx, name: str) -> Row:
    """Return the user of that name; 404."""
    user = by_name(tx, name)
    if user is None:
        raise ApiError(404, f"user redirect does not exist [name: {name}]")
    return user


def by_id(tx: Tx, user_id: int) -> Row:
    """Return the user with that id; 404."""
    user = tx.one("SELECT * FROM users WHERE id = ?", user_id)
    if user is None:
        raise not_found()
    return user


def check_new(name: str, email: str, password: str) -> None:
    """Refuse what Gitea refuses about a new account: 422 with the reason."""
    if not NAME.fullmatch(name) or len(name) > 40 or name.endswith((".", "-", "_")):
        raise unprocessable(f"name is invalid [{name}]: must be valid alpha or numeric or dash(-_) or dot characters")
    if name.lower() in RESERVED:
        raise unprocessable(f"name is reserved [name: {name}]")
    if not EMAIL.fullmatch(email):
        raise unprocessable(f"e-mail invalid [email: {email}]")
    if len(password) < MIN_PASSWORD:
        raise ApiError(400, f"PasswordComplexity: the password needs at least {MIN_PASSWORD} characters")


def create(
    tx: Tx,
    now: int,
    name: str,
    email: str,
    password: str,
    *,
    full_name: str = "",
    is_admin: bool = False,
    must_change_password: bool = True,
    restricted: bool = False,
    visibility: str = "public",
) -> Row:
    """Insert a user (`password` is the hash); 422 when name or e-mail is taken."""
    if by_name(tx, name) is not None:
        raise unprocessable(f"user already exists [name: {name}]")
    if tx.value("SELECT 1 FROM users WHERE email = ?", email):
        raise unprocessable(f"e-mail already in use [email: {email}]")
    user_id = tx.insert(
        "users", name=name, lower_name=name.lower(), email=email, full_name=full_name, password=password,
        is_admin=is_admin, must_change_password=must_change_password, restricted=restricted,
        visibility=visibility, created=now,
    )  # fmt: skip
    return by_id(tx, user_id)


def add_token(tx: Tx, now: int, user_id: int, name: str, scopes: list[str], token: str) -> Row:
    """Store a token's hash; 400 for a bad request as Gitea says it."""
    if not name:
        raise unprocessable("[Name]: Required")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown:
        raise ApiError(400, f"invalid access token scope provided: {unknown[0]}")
    if not scopes:
        raise ApiError(400, "access token must have a scope")
    if tx.value("SELECT 1 FROM tokens WHERE user_id = ? AND name = ?", user_id, name):
        raise ApiError(400, "access token name has been used already")
    token_id = tx.insert(
        "tokens", user_id=user_id, name=name, hash=token_hash(token), last_eight=token[-8:],
        scopes=json.dumps(scopes), created=now,
    )  # fmt: skip
    row = tx.one("SELECT * FROM tokens WHERE id = ?", token_id)
    assert row is not None
    return row


def by_token(tx: Tx, token: str) -> tuple[Row, Row] | None:
    """Return the user and the token's row, or None."""
    row = tx.one("SELECT * FROM tokens WHERE hash = ?", token_hash(token))
    return None if row is None else (by_id(tx, row["user_id"]), row)


def by_session(tx: Tx, now: int, secret: str) -> Row | None:
    """Return the user of a session that has not expired, or None."""
    user_id = tx.value("SELECT user_id FROM sessions WHERE hash = ? AND expires > ?", token_hash(secret), now)
    return None if user_id is None else tx.one("SELECT * FROM users WHERE id = ?", user_id)
