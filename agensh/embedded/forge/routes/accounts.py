"""Users and their tokens."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from agensh.embedded.forge import scopes
from agensh.embedded.forge.errors import ApiError, forbidden, not_found, unprocessable
from agensh.embedded.forge.state import ApiCall, Json
from agensh.embedded.forge.store import users
from agensh.embedded.forge.store.database import Tx

router = APIRouter(prefix="/api/v1")


class NewUser(BaseModel):
    """Gitea's default of `must_change_password` is true, which breaks the account's web session: send false."""

    username: str = ""
    email: str = ""
    password: str = ""
    full_name: str = ""
    must_change_password: bool | None = True
    restricted: bool | None = False
    visibility: str = "public"


class UserChange(BaseModel):
    email: str | None = None
    password: str | None = None
    full_name: str | None = None
    must_change_password: bool | None = None
    admin: bool | None = None
    prohibit_login: bool | None = None
    restricted: bool | None = None
    visibility: str | None = None


class NewToken(BaseModel):
    name: str = ""
    scopes: list[str] | None = None


@router.get("/user")
async def me(call: ApiCall) -> Json:
    """The caller."""
    return await call.read(lambda tx: call.shapes(tx).user(call.user["id"]))


@router.get("/users/search")
async def search(call: ApiCall) -> Json:
    """Users whose name contains `q`."""
    words = call.request.query_params.get("q", "").lower()
    uid = call.number("uid", 0)

    def find(tx: Tx) -> Json:
        where = "(instr(lower_name, ?) > 0 OR instr(lower(full_name), ?) > 0) AND (? = 0 OR id = ?)"
        values = (words, words, uid, uid)
        call.paged(tx.value(f"SELECT count(*) FROM users WHERE {where}", *values))
        rows = tx.all(
            f"SELECT * FROM users WHERE {where} ORDER BY lower_name LIMIT ? OFFSET ?", *values, call.limit, call.offset
        )
        shapes = call.shapes(tx)
        return {"data": [shapes.user_row(row) for row in rows], "ok": True}

    return await call.read(find)


@router.get("/users/{name}")
async def one(call: ApiCall, name: str) -> Json:
    """A user."""
    return await call.read(lambda tx: call.shapes(tx).user_row(users.require(tx, name)))


@router.get("/admin/users")
async def every(call: ApiCall) -> list[Json]:
    """All users, for the site administrator."""
    call.require_admin()

    def find(tx: Tx) -> list[Json]:
        call.paged(tx.value("SELECT count(*) FROM users"))
        rows = tx.all("SELECT * FROM users ORDER BY lower_name LIMIT ? OFFSET ?", call.limit, call.offset)
        shapes = call.shapes(tx)
        return [shapes.user_row(row) for row in rows]

    return await call.read(find)


@router.post("/admin/users", status_code=201)
async def create(call: ApiCall, new: NewUser) -> Json:
    """Create a user; 422 when name or e-mail is taken."""
    call.require_admin()
    users.check_new(new.username, new.email, new.password)
    stored = await call.forge.passwords.hash(new.password)
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        row = users.create(
            tx, now, new.username, new.email, stored, full_name=new.full_name,
            must_change_password=new.must_change_password is not False, restricted=bool(new.restricted),
            visibility=new.visibility,
        )  # fmt: skip
        return call.shapes(tx).user_row(row)

    return await call.write(insert)


@router.patch("/admin/users/{name}")
async def change(call: ApiCall, name: str, new: UserChange) -> Json:
    """Change a user."""
    call.require_admin()
    columns: dict[str, Any] = new.model_dump(exclude={"password", "admin"}, exclude_none=True)
    if new.admin is not None:
        columns["is_admin"] = new.admin
    if new.password:
        if len(new.password) < users.MIN_PASSWORD:
            raise ApiError(400, f"PasswordComplexity: the password needs at least {users.MIN_PASSWORD} characters")
        columns["password"] = await call.forge.passwords.hash(new.password)

    def save(tx: Tx) -> Json:
        row = users.require(tx, name)
        if new.email and tx.value("SELECT 1 FROM users WHERE email = ? AND id != ?", new.email, row["id"]):
            raise ApiError(400, f"e-mail already in use [email: {new.email}]")
        if columns:
            tx.update("users", "id", row["id"], **columns)
        if new.password:
            tx.run("DELETE FROM sessions WHERE user_id = ?", row["id"])
        return call.shapes(tx).user_row(users.by_id(tx, row["id"]))

    return await call.write(save)


@router.delete("/admin/users/{name}", status_code=204)
async def delete(call: ApiCall, name: str) -> None:
    """Delete a user who owns nothing and wrote nothing; 422 otherwise."""
    call.require_admin()

    def remove(tx: Tx) -> None:
        row = users.require(tx, name)
        for table, column in (("repos", "owner_id"), ("issues", "poster_id"), ("comments", "poster_id")):
            if tx.value(f"SELECT 1 FROM {table} WHERE {column} = ?", row["id"]):
                raise unprocessable(f"user still has ownership of {table}; delete these first [name: {name}]")
        tx.run("DELETE FROM users WHERE id = ?", row["id"])

    await call.write(remove)


def _may_handle_tokens(call: ApiCall, name: str) -> None:
    if call.user["lower_name"] != name.lower() and not call.user["is_admin"]:
        raise forbidden("doer should be the site admin or be same as the contextUser")
    if not call.caller.basic:
        raise ApiError(401, "auth required")


@router.get("/users/{name}/tokens")
async def tokens(call: ApiCall, name: str) -> list[Json]:
    """A user's tokens, without the secrets; Basic authentication, by the user or a site administrator."""
    _may_handle_tokens(call, name)

    def find(tx: Tx) -> list[Json]:
        user = users.require(tx, name)
        rows = tx.all("SELECT * FROM tokens WHERE user_id = ? ORDER BY id DESC", user["id"])
        shapes = call.shapes(tx)
        return [shapes.token(row) for row in call.slice(rows)]

    return await call.read(find)


@router.post("/users/{name}/tokens", status_code=201)
async def create_token(call: ApiCall, name: str, new: NewToken) -> Json:
    """Mint a token; `sha1` is the token and is shown only here."""
    _may_handle_tokens(call, name)
    if call.caller.token is not None and scopes.broader(call.caller.token, new.scopes or []):
        raise forbidden("a token cannot mint a token of broader scopes")
    secret = secrets.token_hex(20)
    now = call.forge.now()

    def insert(tx: Tx) -> Json:
        user = users.require(tx, name)
        row = users.add_token(tx, now, user["id"], new.name, new.scopes or [], secret)
        return call.shapes(tx).token(row, secret)

    return await call.write(insert)


@router.delete("/users/{name}/tokens/{token}", status_code=204)
async def delete_token(call: ApiCall, name: str, token: str) -> None:
    """Revoke a token, by its name or id."""
    _may_handle_tokens(call, name)

    def remove(tx: Tx) -> None:
        user = users.require(tx, name)
        if not tx.run(
            "DELETE FROM tokens WHERE user_id = ? AND (name = ? OR CAST(id AS TEXT) = ?)", user["id"], token, token
        ):
            raise not_found()

    await call.write(remove)
